"""Drawings of the methods whose classifier places the images."""

from __future__ import annotations

from drawn_parts import (
    BOTH,
    BY_Q,
    CLASSIFIER,
    CLS_S,
    CLS_U,
    CONTRAST,
    DEBIASED,
    EVERY,
    FIVE,
    LARGEST,
    LAST,
    ME,
    PROJECTOR,
    SET,
    kept,
    learns,
    network,
    term,
)
from flow import Box, Drawing, Loss

DRAWINGS = {
    "rs": Drawing(
        "pairs by the strongest features",
        network("rs"),
        {
            "head": learns("Linear head", "K outputs, softmax"),
            "ce": term("ce", "labelled", "labelled images, first view: cross entropy with the label"),
            "mse": term("mse", "all", "all images: both views predict alike; weight w(t) rises"),
            "pairs": Box(
                "Which two are a pair?",
                f"the same {SET['rs'].strongest} features are strongest in the first view; of two labelled images: "
                "the same label",
            ),
            "bce": term("bce", "all", "all pairs of the batch: predicted alike if a pair, else unlike"),
        },
        "head | ce mse / pairs | bce",
        "f>head f~pairs head>ce head>mse head>bce pairs~bce",
        ("L = L_ce + L_bce + w(t) L_mse",),
        (EVERY, Box("Linear head", "K outputs of the image"), LARGEST),
    ),
    "uno": Drawing(
        "one softmax, balanced targets",
        network("uno"),
        {
            "heads": learns(
                f"{SET['uno'].heads} heads: logits l",
                "known prototypes on f, which start at class means; novel ones on an MLP of f",
            ),
            "cluster": Loss(
                ("swap(l, q)",),
                "all images: a view learns the targets q of the other",
                ("all",),
                ("cluster",),
            ),
            "queue": kept("Queue", f"of unlabelled logits, {SET['uno'].queue} for each category"),
            "targets": Box(
                "Targets q",
                "labelled: the label; unlabelled: Sinkhorn spreads batch and queue over all classes as if these were "
                "equally large",
            ),
            "over": learns(
                f"{SET['uno'].heads} heads more: logits l′",
                f"the same known prototypes, {SET['uno'].over} times as many novel ones",
            ),
            "finer": Loss(("swap(l′, q′)",), "the same with the finer classes", ("all",), ("over",)),
        },
        "heads | cluster / queue | targets / over | finer",
        "f>heads f>over heads>cluster over>finer heads~queue over~queue heads~targets over~targets queue~targets"
        " targets~cluster targets~finer",
        ("L = 1/H sum_h [ swap(l_h, q_h) + swap(l'_h, q'_h) ] / 2",),
        (EVERY, Box("One head", "that with the least loss in the last epoch"), LARGEST),
    ),
    "simgcd": Drawing(
        "a classifier that teaches itself",
        network("simgcd"),
        {
            "projector": PROJECTOR,
            **CONTRAST,
            "classifier": CLASSIFIER,
            "sharp": Box(
                "Sharper prediction",
                f"of the other view, at a temperature that falls from {SET['simgcd'].teacher_temp_start} to "
                f"{SET['simgcd'].teacher_temp}",
            ),
            "cls_s": CLS_S,
            "me": ME,
            "cls_u": CLS_U,
        },
        "projector | con_u con_s / classifier sharp | cls_s me cls_u",
        "f>projector f>classifier projector>con_u projector>con_s classifier>cls_s classifier>me classifier>cls_u"
        " classifier~sharp sharp~cls_u",
        ("L = (1 - lam) * (L_cls_u + eps * L_me) + lam * L_cls_s + (1 - lam) * L_con_u + lam * L_con_s",),
        BY_Q,
    ),
    "sptnet": Drawing(
        "SimGCD, then pixels that learn in turns with it",
        network("sptnet", learns("Prompt P (stage 2)", "adds a frame and the borders of patches")),
        {
            "heads": BOTH,
            "five": FIVE._replace(
                words="stage 1: SimGCD to its end, without P\nstage 2: the same losses, in turns"
            ),
            "prompt": Box(
                "Turn of the prompt",
                f"{SET['sptnet'].turn} steps on P(x_{{1}}) and P(x_{{2}}): P learns, last block and heads stand still",
            ),
            "model": Box(
                "Turn of the network",
                f"{SET['sptnet'].turn} steps on x_{{1}} and P(x_{{1}}), one crop without and with P: last block and "
                "heads learn, P stands still",
            ),
        },
        "heads | five / prompt | model",
        "f>heads heads>five prompt=model",
        ("P(x) = x + frame + [border of every patch] * prompt,   L = L_SimGCD",),
        (Box("Every image", "its centre crop with the prompt on it: f"), *BY_Q[1:]),
    ),
    "protogcd": Drawing(
        "pseudo-labels from soft to hard, prototypes apart",
        network("protogcd"),
        {
            "projector": PROJECTOR,
            **CONTRAST,
            "classifier": CLASSIFIER,
            "pseudo": Box(
                "Pseudo-labels",
                "of the other view: hard in the surest rows, whose share grows to all, soft in the others",
            ),
            "cls_s": CLS_S,
            "ent": term("ent", "all", ME.words),
            "sep": term("sep", "none", "the prototypes alone: they are driven apart"),
            "dapl": term("dapl", "all", "all images: a view learns these pseudo-labels"),
        },
        "projector | con_u con_s / classifier pseudo | cls_s ent sep dapl",
        "f>projector f>classifier projector>con_u projector>con_s classifier>cls_s classifier>ent classifier>sep"
        " classifier>dapl classifier~pseudo pseudo~dapl",
        (
            "L = (1 - lam) * (L_dapl + 2 L_ent + sep L_sep) + lam * L_cls_s + (1 - lam) * L_con_u + lam * L_con_s",
        ),
        BY_Q,
    ),
    "debgcd": Drawing(
        "SimGCD, a debiased classifier and a detector",
        network("debgcd", last=LAST._replace(title="Last block, or two")),
        {
            "heads": BOTH,
            "five": FIVE,
            "debiased": DEBIASED,
            "adl": term(
                "adl", "all", "labels; else what q is sure of, weighted by how sure the detector is: d"
            ),
            "detector": learns(
                "Detector: known or not?",
                "one answer for each known class; s_{ID} is the largest\nd = |2 (1 − s_{ID}) − 1|",
            ),
            "sdl": term(
                "sdl",
                "all",
                "labelled: own class yes, next best no; unlabelled: decided, and both views alike",
            ),
        },
        "heads | five / debiased | adl / detector | sdl",
        "f>heads f>debiased f>detector heads>five debiased>adl detector>sdl heads~adl detector~adl",
        ("L = L_SimGCD + adl * L_adl + sdl * L_sdl",),
        (*BY_Q[:2], LARGEST._replace(words="how known: s_{ID} of the detector")),
    ),
    "rpc": Drawing(
        "known classes explain novel ones",
        network("rpc"),
        {
            "debiased": DEBIASED,
            "adl": term("adl", "all", "labels; else what q is sure of, weighted as in DebGCD"),
            "heads": BOTH,
            "five": FIVE,
            "groups": Box(
                "Groups",
                "a labelled anchor, then images that q puts in its class; each z takes from the one before, by w_{old}",
            ),
            "align": term(
                "align", "all", "groups: from the weak to the strong view they change as their anchor does"
            ),
            "ova": learns("One-vs-all heads", "how known is it?\nw_{old} = s_{ID}, w_{new} = 1 − w_{old}"),
            "sdl": term("sdl", "all", "that of DebGCD's detector"),
            "signature": kept(
                "Signature r(x)", "cosines of f with the known classes' prototypes, which are moving means"
            ),
            "new": term(
                "new",
                "unlabelled",
                "unlabelled images: those alike get like signatures, weighted by w_{new} to the power of "
                f"{SET['rpc'].new.sharpen:g}",
            ),
        },
        "debiased | adl / heads | five / groups | align / ova | sdl / signature | new",
        "f>debiased f>heads heads>groups f>ova f>signature debiased>adl heads~adl heads>five groups>align ova~groups"
        " ova~adl ova>sdl ova~new signature>new",
        (
            "L = L_baseline + lambda_1 * L_align + lambda_2 * L_new",
            "L_baseline: the losses of DebGCD, which are L_SimGCD, L_adl and L_sdl",
        ),
        (*BY_Q[:2], LARGEST._replace(words="how known: s_{ID} of the one-vs-all heads")),
    ),
}
