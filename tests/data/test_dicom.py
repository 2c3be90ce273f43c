"""DICOM files, made and read with the real package."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.decode import ImageProblem, read_image
from holotype.data.image_files import IMAGE_EXTENSIONS

pytestmark = pytest.mark.packages
pydicom = pytest.importorskip("pydicom", reason="pip install 'holotype[dicom]'")

VALUES = np.array([[0, 1000, 1100], [1200, 1300, 3000]], dtype=np.uint16)


def save_dicom(path: Path, values: np.ndarray | None, **tags: object) -> Path:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, "1.2.3"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    made.SOPClassUID, made.SOPInstanceUID = SecondaryCaptureImageStorage, "1.2.3"
    if values is not None:
        colours = values.dtype == np.uint8
        made.Rows, made.Columns = values.shape[-3:-1] if colours else values.shape[-2:]
        bits = 8 * values.dtype.itemsize
        made.BitsAllocated = made.BitsStored = bits
        made.HighBit, made.PixelRepresentation = bits - 1, 0
        made.SamplesPerPixel = 3 if colours else 1
        made.PhotometricInterpretation = "RGB" if colours else "MONOCHROME2"
        if colours:
            made.PlanarConfiguration = 0
        if values.ndim == 3 and not colours:
            made.NumberOfFrames = len(values)
        made.PixelData = values.tobytes()
    for name, value in tags.items():
        setattr(made, name, value)
    made.save_as(path, enforce_file_format=True)
    return path


def grey(path: Path) -> list[int]:
    image, _ = read_image(str(path))
    return np.asarray(image)[:, :, 0].ravel().tolist()


def loop(low: float, high: float) -> list[int]:
    return [round(min(max((float(v) - low) * 255 / (high - low), 0), 255)) for v in VALUES.ravel()]


def test_a_file_is_shown_in_its_window_and_slope(tmp_path) -> None:
    assert ".dcm" in IMAGE_EXTENSIONS
    plain = save_dicom(tmp_path / "a.dcm", VALUES)
    assert grey(plain) == loop(0, 3000)
    window = save_dicom(tmp_path / "b.dcm", VALUES, WindowCenter=1150.5, WindowWidth=301)
    assert grey(window) == loop(1000, 1300)
    assert "grey values from 1,000 to 1,300" in read_image(str(window))[1]
    tags = {"RescaleSlope": 1, "RescaleIntercept": -1000, "WindowCenter": [150.5, 0], "WindowWidth": [301, 9]}
    slope = save_dicom(tmp_path / "c.dcm", VALUES, **tags)
    assert grey(slope) == grey(window)
    negative = save_dicom(tmp_path / "d.dcm", VALUES, PhotometricInterpretation="MONOCHROME1")
    assert grey(negative) == [255 - value for value in grey(plain)]


def test_frames_and_colours(tmp_path) -> None:
    film = save_dicom(tmp_path / "film.dcm", np.stack([VALUES, VALUES[::-1]]))
    assert grey(film) == loop(0, 3000)
    assert "first of 2 frames" in read_image(str(film))[1]
    colours = np.random.default_rng(0).integers(0, 256, (3, 4, 3)).astype(np.uint8)
    assert np.array_equal(np.asarray(read_image(str(save_dicom(tmp_path / "c.dcm", colours)))[0]), colours)


def test_of_a_film_one_frame_is_decoded(tmp_path, monkeypatch) -> None:
    film = save_dicom(tmp_path / "film.dcm", np.stack([VALUES] * 5))
    decoded, whole = [], pydicom.pixels.pixel_array

    def pixel_array(*words: object, **how: object) -> np.ndarray:
        decoded.append(whole(*words, **how))
        return decoded[-1]

    monkeypatch.setattr(pydicom.pixels, "pixel_array", pixel_array)
    assert grey(film) == loop(0, 3000)
    assert [one.shape for one in decoded] == [VALUES.shape]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MR_small_jpeg_ls_lossless.dcm", "another package"),
        ("nested_priv_SQ.dcm", "without pixels"),
        ("JPEG-lossy.dcm", "damaged"),
    ],
)
def test_what_pydicom_cannot_read_is_one_line(tmp_path, name, words) -> None:
    from pydicom.data import get_testdata_file

    file = get_testdata_file(name, download=False)
    if (
        words == "another package"
        and pydicom.pixels.get_decoder(pydicom.dcmread(file).file_meta.TransferSyntaxUID).is_available
    ):
        pytest.skip("the package is here")
    with pytest.raises(ImageProblem, match=words) as refused:
        read_image(file)
    assert "\n" not in str(refused.value)


def test_a_file_without_pixels_is_said(tmp_path) -> None:
    with pytest.raises(ImageProblem, match=r"empty\.dcm is a DICOM file without pixels"):
        read_image(str(save_dicom(tmp_path / "empty.dcm", None)))
    (tmp_path / "torn.dcm").write_bytes(save_dicom(tmp_path / "a.dcm", VALUES).read_bytes()[:-7])
    with pytest.raises(ImageProblem):
        read_image(str(tmp_path / "torn.dcm"))
    Image.new("RGB", (4, 4), "red").save(tmp_path / "other.png")
    assert read_image(str(tmp_path / "other.png"))[0].size == (4, 4)


def test_a_folder_of_nothing_else_is_refused(tmp_path, holotype) -> None:
    for number in range(12):
        folder = tmp_path / "scans" / ("lung" if number < 3 else "heart" if number < 6 else "")
        folder.mkdir(parents=True, exist_ok=True)
        save_dicom(folder / f"{number}.dcm", None)
    refused = holotype("discover", tmp_path / "scans", "--backbone", "embedded", "--out", tmp_path / "run")
    assert refused.code == 2
    assert "without pixels" in refused.err
