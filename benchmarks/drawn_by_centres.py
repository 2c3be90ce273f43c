"""Drawings of the methods at whose end k-means places the images."""

from __future__ import annotations

from drawn_parts import (
    BY_CENTRES,
    CENTRES,
    CONTRAST,
    EVERY,
    HEAD,
    IMAGES,
    NEAREST,
    SET,
    kept,
    learns,
    network,
    term,
)
from flow import Box, Drawing, Loss

from holotype.methods import dccl
from holotype.models.prompts import N_PROMPTS, POOLED

DRAWINGS = {
    "kmeans": Drawing(
        "features as they are",
        {
            "images": IMAGES,
            "views": Box("One view", "centre crop"),
            "frozen": Box("Whole network", "nothing learns", "frozen"),
        },
        {
            "kmeans": Box(
                "k-means", f"on unlabelled images alone: K clusters, best of {SET['kmeans'].n_init} starts"
            ),
            "names": Box(
                "Names from labels",
                "labelled images vote: each known class gets one cluster; the others are new categories",
            ),
        },
        "kmeans | names",
        "f>kmeans kmeans>names",
        ("No loss is minimised, and no label takes part in the clustering.",),
        (
            EVERY,
            Box("Nearest centre", "of f scaled to length 1"),
            Box("Category: its cluster", "how known: it does not say"),
        ),
    ),
    "gcd": Drawing(
        "contrast, then k-means that heeds labels",
        network("gcd"),
        {"head": HEAD, **CONTRAST},
        "head | con_u con_s",
        "f>head head>con_u head>con_s",
        ("L = (1 - lam) * L_con_u + lam * L_con_s",),
        BY_CENTRES,
    ),
    "promptcal": Drawing(
        "learnt tokens, a teacher, a graph",
        network(
            "promptcal",
            learns("Prompts", f"{N_PROMPTS} tokens in every block"),
            last=learns("Last block", "f: CLS and prompts"),
            teacher=kept("Teacher (stage 2)", "follows prompts, last block and heads as a moving average"),
        ),
        {
            "heads": learns(
                "Two contrastive heads", f"one on CLS; one on the mean of {POOLED} prompts, of weight γ"
            ),
            "con_u": term(
                "con_u", "all", f"{CONTRAST['con_u'].words}, in stage 2 the teacher's", "con_u_prompt"
            ),
            "con_s": term(
                "con_s",
                "labelled",
                f"{CONTRAST['con_s'].words}, in stage 2 with the teacher's",
                "con_s_prompt",
            ),
            "plain": Box("No head", "CLS and prompts as they are"),
            "cal": term(
                "cal",
                "all",
                "stage 2, all images: near the rows that the graph links, far from others",
                "cal_prompt",
            ),
            "memory": kept("Memory", f"the teacher's last {SET['promptcal'].memory:,} features, with labels"),
            "graph": Box(
                "Graph of batch and memory",
                "who shares nearest neighbours with whom; labels, where there are any, overrule it",
            ),
        },
        "heads | con_u con_s / plain | cal / memory | graph",
        "f>heads f>plain heads>con_u heads>con_s plain>cal teacher~memory memory~graph graph~cal",
        (
            "Stage 1: L = S(z_cls) + gamma S(z_dpr),   S = (1 - lam) InfoNCE + lam SupCon",
            "Stage 2: L = G(cls) + gamma G(dpr),   G = lam SupCon + (1 - lam) [(1 - w) InfoNCE + w L_cal]",
        ),
        (Box("Every image", "its centre crop: CLS of the student, f"), CENTRES, NEAREST),
    ),
    "dccl": Drawing(
        "contrast, and communities of neighbours",
        network("dccl"),
        {
            "head": HEAD,
            **CONTRAST,
            "plain": Box(
                f"{dccl.SLOTS} concepts more in a step", f"{dccl.MEMBERS} images of each: f as it is, no head"
            ),
            "concept": Loss(
                ("L_{C}",),
                "these images: near the centre of their concept, far from others",
                ("all",),
                ("concept",),
            ),
            "communities": Box(
                "Communities",
                "before an epoch, a graph of all images and their neighbours falls into concepts",
            ),
            "centres": kept(
                "Centres μ of the concepts",
                "start at their means; after a step each image moves that of its concept",
            ),
        },
        "head | con_u con_s / plain | concept / communities | centres",
        "f>head f>plain f~communities head>con_u head>con_s plain>concept communities~centres centres~concept",
        ("L = (1 - lam) L_con_u + lam L_con_s + w(e) L_C",),
        BY_CENTRES,
    ),
}
