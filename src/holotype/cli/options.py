"""The options of every command, each a dataclass, of which common.py makes a parser.

They stand apart from the commands, which import what they need: wrong words and --help need none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from holotype.config.parse import Count, DeviceName, Name, Port, Seed, Side, UnitInterval, at_most
from holotype.config.schema import DiscoverConfig, Pool
from holotype.errors import InputError
from holotype.export.registry import EXPORTERS, ExporterOptions

Dir = Annotated[Path, "DIR"]
File = Annotated[Path, "FILE"]
RunDir = Annotated[Path, "RUN"]
"""A string in `Annotated` names the value in the help; in brackets, "[NAME]", it makes an optional positional."""
MAX_SHARD = 4096
"""Images of a slice."""


@dataclass(kw_only=True)
class CodeOptions:
    allow_code: bool = False
    """Import the method that a file names as package.module:Class; it can do whatever you can."""


@dataclass(kw_only=True)
class ProgressOptions:
    no_progress: bool = False
    """Show no progress bars."""

    @property
    def progress(self) -> bool:
        """Whether bars are shown."""
        return not self.no_progress


@dataclass(kw_only=True)
class RunningOptions(ProgressOptions):
    device: DeviceName = "auto"
    """Where to compute."""


@dataclass(kw_only=True)
class LabelsOptions:
    labels: File | None = None
    """CSV or Parquet file with the columns path and label (default: sub-folders)."""


@dataclass(kw_only=True)
class BoxOptions:
    boxes: File | None = None
    """JSON of MegaDetector, or COCO annotations: the images are the boxes of animals in it."""
    box_confidence: Annotated[UnitInterval, "SHARE"] | None = None
    """With --boxes: least confidence of the detector (default: 0.2)."""
    skip_missing: bool = False
    """Leave out rows of a file whose images are missing, and impossible boxes."""

    @property
    def box_options(self) -> dict[str, Any]:
        """These options as load_table takes them."""
        if self.box_confidence is not None and self.boxes is None:
            raise InputError("--box-confidence says nothing without --boxes; name a file of boxes.")
        chosen = {} if self.box_confidence is None else {"box_confidence": self.box_confidence}
        return {"boxes": self.boxes, "skip_missing": self.skip_missing, **chosen}


@dataclass(kw_only=True)
class ImageOptions(LabelsOptions, RunningOptions):
    """What embed and estimate-k take."""

    images: str
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), an
    address (s3://bucket/photos, gs://, abfs://, hf://datasets/...), or the name of a benchmark."""
    root: Dir | None = None
    """Folder of the benchmark, in its official layout."""
    backbone: Name = "auto"
    """The network: auto, embedded, timm's name, hf-hub:ORGANISATION/REPOSITORY, or a .safetensors file."""
    arch: Name | None = None
    """timm's name of the network in a .safetensors file."""
    image_size: Annotated[Side, "PIXELS"] | None = None
    """Side of the backbone's input."""
    pool: Pool = "auto"
    """What to use as the feature: token (CLS), mean (of the patches), or auto: as the makers of the weights do."""
    mean: Annotated[str, "R,G,B"] | None = None
    """Mean that a .safetensors file expects."""
    std: Annotated[str, "R,G,B"] | None = None
    """Standard deviation that a .safetensors file expects."""


@dataclass(kw_only=True)
class ShardOptions(RunningOptions):
    """What embed and assign take to work in slices, on one machine or on several."""

    engine: Literal["local", "ray"] | None = None
    """Where to compute the slices: local, in this process (default), or ray, on a Ray cluster
    (pip install 'holotype[ray]')."""
    ray_address: Annotated[str, "ADDR"] | None = None
    """With --engine ray: host:port of the cluster, or auto for the cluster of this machine (default: RAY_ADDRESS, or
    else a new cluster on this machine)."""
    actors: Annotated[Count, "N"] | None = None
    """With --engine ray: number of workers, each with a GPU if there are any (default: all that fit)."""
    only: Annotated[str, "I/N"] | None = None
    """Do only every N-th slice, starting with the I-th, for example in a Slurm array; other jobs may work in the same
    folder at once."""
    slice: Annotated[Count, at_most(MAX_SHARD), "IMAGES"] | None = None
    """Images per slice, at most 4,096, for a new folder (default: 512 on a CPU of this machine, else 4,096)."""

    def __post_init__(self) -> None:
        """Raise InputError for flags that lack another."""
        for flag, value in (("--ray-address", self.ray_address), ("--actors", self.actors)):
            if value and self.engine != "ray":
                raise InputError(f"{flag} says nothing without --engine ray; add it, or leave {flag} out.")


@dataclass(kw_only=True)
class EmbedOptions(ImageOptions, ShardOptions):
    """Write the features that a frozen backbone gives to every image, as Parquet shards with the columns digest, path,
    feature, problem and note. You can stop with Ctrl-C; the same command continues."""

    out: Dir | None = None
    """Folder for the shards (default: runs/NAME-embeddings)."""


@dataclass(kw_only=True)
class DemoOptions(RunningOptions):
    """Write the embedded Fashion-MNIST sample as a folder of images, discover its categories with the embedded
    backbone, score them against the hidden truth, and show k-means on the same features beside it."""

    out: Dir = Path("runs/demo")
    """Run folder."""
    seed: Seed = 0
    """Seed of everything random."""


@dataclass(kw_only=True)
class DiscoverOptions(LabelsOptions, BoxOptions, CodeOptions, ProgressOptions):
    """Place every image in a known class or in a category found in the data: embed, estimate how many categories there
    are, train, describe, write a report. You can stop with Ctrl-C; the same command continues."""

    images: Annotated[str, "[IMAGES]"] | None = None
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), or
    an address (s3://bucket/photos, gs://, abfs://, hf://datasets/...)."""
    table: Annotated[str, "FILE"] | None = None
    """The same as IMAGES, for what holotype sample wrote."""
    features: File | None = None
    """In place of IMAGES: a Parquet file with a column vector (a list of numbers in each row), made by any network of
    anything; also id, path, label, group and text."""
    out: RunDir | None = None
    """Run folder (default: runs/NAME-discover)."""
    dry_run: bool = False
    """Check the images and labels, say what to fix and how long training will take; write nothing."""
    unlabelled: list[Annotated[str, "NAME"]] = field(default_factory=list)
    """Treat this folder or label as unlabelled, not as a class; can be given several times."""
    embeddings: Dir | None = None
    """What holotype embed wrote of these images, or of all that holotype sample drew them from."""
    edits: File | None = None
    """edits.csv of the report of this run, or what Label Studio (.json) or CVAT (.xml) exported."""
    config: DiscoverConfig = field(default_factory=DiscoverConfig)

    @property
    def source(self) -> str:
        """The images, however they are named."""
        given = [str(one) for one in (self.images, self.table, self.features) if one is not None]
        if len(given) != 1:
            raise InputError("holotype discover takes IMAGES, --table or --features, one of them.")
        if self.features is not None and (
            flag := "boxes" if self.boxes else self.embeddings and "embeddings"
        ):
            raise InputError(f"--{flag} is for images, and --features gives vectors; leave it out.")
        return given[0]


@dataclass(kw_only=True)
class ReportOptions(CodeOptions, RunningOptions):
    """Build the report of a run of holotype discover or holotype train, with corrections. The first report of a run
    computes its map, which takes a while."""

    run: RunDir
    """Folder of a finished run."""
    edits: File | None = None
    """edits.csv of the report, or what Label Studio (.json) or CVAT (.xml) exported."""
    names: File | None = None
    """Propose names for new categories: a file with a word on each line, or imagenet for the names of its 1,000
    classes. Needs the extra names: pip install 'holotype[names]'."""
    tower: Name = "hf-hub:laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
    """With --names: a network with a text tower, as open_clip names it, or a folder with open_clip_config.json."""
    zip: File | None = None
    """Also write the report and its tables into one zip to mail, without paths of this computer."""
    with_paths: bool = False
    """Show the full paths of run and images in the page; they may contain your name (default: relative names)."""
    overwrite: bool = False
    """Replace the file --zip if it exists."""


@dataclass(kw_only=True)
class StudioOptions:
    """Open the report of a run in the browser, where edits are saved at once and rounds can be started. Needs the extra
    studio: pip install 'holotype[studio]'."""

    run: Annotated[str, "RUN"]
    """Folder of a finished run, or a folder of images: a new one gets its run in runs/."""
    port: Annotated[Port, "N"] | None = None
    """Port of this computer (default: 8321, or the next one that is free)."""
    assign: Annotated[Path, "NEW"] | None = None
    """Folder of new images that the studio may place in the categories."""
    read_only: bool = False
    """Only show: save no edits and start nothing."""
    no_browser: bool = False
    """Print the link and open no browser."""


@dataclass(kw_only=True)
class CutOptions(CodeOptions, RunningOptions):
    """Change the number of categories of a run without training: with fewer, the nearest ones are merged; with more,
    some are split. Known classes stay. The result goes to a new folder; the run stays as it is."""

    run: RunDir
    """Folder of a finished run."""
    k: Count | None = None
    """Number of categories, known and new together (default: say what would happen)."""
    out: Dir | None = None
    """Folder of the cut (default: RUN/cuts/K)."""
    overwrite: bool = False
    """Replace a cut in the folder --out."""


@dataclass(kw_only=True)
class AssignOptions(BoxOptions, ShardOptions, CodeOptions):
    """Place new images in the categories of a run, without training, and mark those that fit nothing."""

    run: RunDir
    """Folder of a finished run."""
    images: Annotated[str, "NEW_IMAGES"]
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), an
    address (s3://bucket/photos, gs://, abfs://, hf://datasets/...), or one image."""
    out: Annotated[Path, "FILE"] | None = None
    """Where the table goes, .csv or .parquet (default: RUN/assigned/NEW_IMAGES.csv); a name without an ending is a
    folder of Parquet parts, which a rerun continues."""
    copy_to: Dir | None = None
    """Also write a new folder with a folder of links per category."""
    open: bool = False
    """Let images that are in no category open provisional ones (open-01, ...), which the next round proposes."""
    overwrite: bool = False
    """Replace the file --out if it exists, and a folder --copy-to that Holotype wrote."""


@dataclass(kw_only=True)
class ResultOptions(ExporterOptions, ProgressOptions):
    """Write the results of a run, with its corrections, for other programs or the next run."""

    run: RunDir
    """Folder of a finished run."""
    overwrite: bool = False
    """Replace a file that exists, or a folder that Holotype wrote, unless something of yours would be lost."""


WriteOptions = make_dataclass(
    "WriteOptions",
    [
        (e.name, Annotated[Path, e.metavar] | None, field(default=None, metadata={"help": e.help}))
        for e in EXPORTERS
    ],
    bases=(ResultOptions,),
    namespace={"__doc__": ResultOptions.__doc__},
    kw_only=True,
)
"""Those of `holotype write`: a flag for each exporter."""


@dataclass(kw_only=True)
class ExportOptions(CodeOptions):
    """Write the trained model of a run as ONNX and compare it with torch. Needs the extra onnx:
    pip install 'holotype[onnx]'."""

    run: RunDir
    """Folder of a finished run."""
    file: File
    """Where the model goes, for example model.onnx."""
    overwrite: bool = False
    """Replace FILE if it exists."""


@dataclass(kw_only=True)
class EstimateKOptions(ImageOptions):
    """Estimate how many categories there are, known ones included: a range, with its curve. Labels of at least two
    classes make it much better."""

    k_max: Annotated[Count, "N"] | None = None
    """Largest number to consider (default: two images in each, and at most the larger of 1,000 and twice the known
    classes)."""
    seed: Annotated[Seed, "N"] = 0
    """Seed of k-means."""
    out: Dir | None = None
    """Folder for embeddings and count.json (default: runs/NAME-estimate-k)."""


@dataclass(kw_only=True)
class SampleOptions(LabelsOptions, ProgressOptions):
    """Draw a coverage sample from the embeddings of a collection: cells of images that look alike, about the same
    number of images from each, and weights to estimate the whole collection. Labelled images are always kept. The same
    command always gives the same sample."""

    embeddings: Annotated[Path, "EMBEDDINGS"]
    """Folder that holotype embed has written."""
    n: Annotated[Count, "IMAGES"] = 200_000
    """Images of the sample, labelled ones included."""
    cells: Count | None = None
    """Cells that the collection is cut into (default: a tenth of --n, at most 2000)."""
    no_labels: bool = False
    """No image is labelled; sub-folders mean nothing."""
    out: File = Path("sample.parquet")
    """The sample."""
    seed: Seed = 0
    """Another seed draws another sample."""
    overwrite: bool = False
    """Replace the file --out if it exists."""


@dataclass(kw_only=True)
class StatusOptions:
    """Show the progress of a run, a discovery or all runs of a sweep, while they run and after a crash: phase, step,
    loss, time left, last save, alive or dead. It only reads files of the run folder."""

    run: RunDir
    """Folder of a run or of a discovery, or a folder of run folders such as runs, the --out of holotype bench."""
    json: bool = False
    """For programs: print a list with one JSON object for each run, whose keys are folder, kind, state, alive, phase,
    stage, epoch, epochs, step, steps, loss, seconds_left, last_save, last_sign, pid, host, command, round, words and
    scores; what is not known is null or empty."""


@dataclass(kw_only=True)
class CompareOptions:
    """Compare finished runs of two settings: All, Old and New in pairs of equal seeds with 95 % intervals, the classes
    that gain or lose most, and how many images both place alike."""

    runs: list[RunDir]
    """Folders of runs, those of the first settings first; several seeds of each, as runs/a-s0 runs/a-s1 runs/b-s0
    runs/b-s1."""


@dataclass(kw_only=True)
class PlotOptions:
    """Draw finished runs: losses and scores by epoch, scores over seeds, and of one run the confusion of classes and
    categories. Needs the extra figures."""

    runs: list[RunDir]
    """Folders of runs."""
    out: File | None = None
    """File to write, .png, .pdf or .svg (default: plot.png, in the folder of the run if there is one)."""


@dataclass(kw_only=True)
class FeaturesOptions(CodeOptions):
    """Write the trained features of every image of a run as a table: path, label, category, probability and vector."""

    run: RunDir
    """Folder of a run."""
    logits: bool = False
    """Write the logits of the method as well."""
    out: File | None = None
    """Parquet file to write (default: features.parquet in the folder of the run)."""


@dataclass
class TrainOptions(CodeOptions, ProgressOptions):
    """Train one method on one data set and score it. Every other flag --NAME VALUE is a setting."""

    names: list[Annotated[str, "[METHOD DATASET]"]] = field(default_factory=list)
    """The method and the data set."""
    config: list[File] = field(default_factory=list)
    """YAML file with settings, such as a run's config.yaml; flags win over it."""
    print_config: bool = False
    """Print all settings as such a YAML file and leave."""
    help: bool = False
    """List the settings with their defaults: holotype train METHOD DATASET --help."""
    settings: dict[str, str] = field(default_factory=dict)
    """Dotted settings, as text."""


@dataclass
class BenchOptions(CodeOptions, ProgressOptions):
    """Run methods on data sets with several seeds, or the rows of a study file, one result file each, and collect them
    in a table. Runs that already have a result are not run again."""

    methods: Annotated[str, "M,M@PRESET"] | None = None
    """Methods, separated by commas, each with its preset or not."""
    datasets: Annotated[str, "D,D"] | None = None
    """Data sets, separated by commas."""
    study: tuple[File, ...] = ()
    """YAML file that names rows (a method with settings each), data sets and seeds, instead of --methods and
    --datasets; docs/protocol.md shows one. Of several files, a run that two of them name is made once."""
    rows: Annotated[str, "R,R"] | None = None
    """Rows of the study, separated by commas (default: all)."""
    seeds: Annotated[str, "S,S"] | None = None
    """Seeds, separated by commas (default: those of the study, or 0)."""
    root: Annotated[str, "DIR"] | None = None
    """Folder in which the data sets lie."""
    set: list[Annotated[str, "WHERE:SETTING=VALUE"]] = field(default_factory=list)
    """A setting of holotype train, on top of the study's, for all runs or for those of a METHOD, a METHOD@PRESET or a
    row of the study; repeatable, and the last one counts. Several values, as in train.lr=0.05,0.1, are a grid."""
    cache_views: Annotated[str, "M+S"] | None = None
    """Train on a token cache of M weak and S strong views of each image, as in 16+8; such runs are never averaged with
    exact ones. Default: that of the study, where off, exact mode, is usual; without a study 4+2 on a CPU and off on a
    GPU, as holotype train."""
    log: Annotated[str, "T,T"] | None = None
    """Trackers that losses and scores go to as well: tensorboard, wandb."""
    parallel: Annotated[Count, "R"] = 1
    """Train R runs at once, where they share data set, backbone, device, precision and store."""
    results: Dir | None = None
    """Where records and table go (default: results, or results beside the study file)."""
    out: Dir | None = None
    """Where run folders go (default: runs, or runs/NAME for the study NAME.yaml; of several studies DIR/NAME each)."""
    reuse: Dir | None = None
    """Take records of the same settings, revision and seed from this folder of results as well, instead of running them
    again; a record that contradicts one that is there is refused."""
    table_only: bool = False
    """Build the table from the existing results."""

    def __post_init__(self) -> None:
        """Raise InputError for flags that do not go together, or lack another."""
        for name, value in (("methods", self.methods), ("datasets", self.datasets)):
            if self.study and value:
                raise InputError(f"--{name} cannot be given with --study, whose file names them.")
            if not (self.study or self.table_only or value):
                raise InputError(f"holotype bench needs --{name} (or --study FILE, or --table-only).")
        if self.rows is not None and len(self.study) != 1:
            raise InputError("--rows picks rows of one study; name its file alone with --study.")
        if self.reuse and not self.reuse.is_dir():
            raise InputError(f"--reuse {self.reuse} is not a folder; name the one in which results lie.")


@dataclass
class MethodsOptions:
    """List the methods, or print the card of one: what it computes, its settings, where it differs from its
    publication, and its published scores."""

    name: Annotated[str, "[NAME]"] | None = None
    """A method of the list, or one of your own as package.module:Class."""


@dataclass
class BackbonesOptions:
    """List backbones for each kind of image, with size, licence, pixels and speed; or, with fetch NAME, download one
    into a single file for a machine without a network."""

    use: Annotated[str, "[USE]"] | None = None
    """Kind of images (default: all), or fetch."""
    name: Annotated[str, "[NAME]"] | None = None
    """With fetch: timm's name, hf-hub:ORGANISATION/REPOSITORY, or a list's name for its first choice."""
    to: Dir | None = None
    """With fetch: folder for the file (default: this one)."""
    measure: bool = False
    """Measure the speed on this machine, with random weights (half a minute; nothing is downloaded)."""
    device: DeviceName = "auto"
    """Where to measure."""


@dataclass
class DataOptions:
    """Name the data sets and where they come from; or, with check NAME, say what is there, what is missing and where it
    comes from."""

    action: Annotated[Literal["list", "check"], "[COMMAND]"] = "list"
    """What to do."""
    name: Annotated[str, "[NAME]"] | None = None
    """With check: the data set."""
    root: Dir | None = None
    """With check: folder of the data set, in its official layout."""


@dataclass
class CacheOptions:
    """List the files of the cache folder: size, age, purpose. You can delete all of it at any time; the next run that
    needs it makes it again. Files used by a running process stay."""

    clear: bool = False
    """Delete it, after a question."""
    yes: bool = False
    """With --clear: do not ask."""
    cache_dir: Annotated[str, "DIR"] | None = None
    """A folder that runs were given with --memory.cache-dir (default: holotype in the user's cache folder)."""


@dataclass
class DoctorOptions:
    """Check the installation: versions, hardware, whether the Hugging Face hub answers, what auto means here, and
    whether embedding a few images works. The output contains neither your name nor your folders. Exit code 3: the
    self-test failed."""

    json: bool = False
    """The same as JSON."""
    paths: bool = False
    """Show the full paths of folders."""


@dataclass
class CompletionOptions:
    """Print a script that completes commands, flags, methods, data sets and presets. It is made once. For bash,
    holotype completion bash > ~/.local/share/bash-completion/completions/holotype; for zsh, holotype completion zsh >
    ~/.holotype.zsh, and source that file in ~/.zshrc; for fish, holotype completion fish >
    ~/.config/fish/completions/holotype.fish."""

    shell: Literal["bash", "zsh", "fish"]
    """The shell."""
