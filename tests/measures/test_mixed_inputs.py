"""Mixed inputs: what is accepted and refused, their rows, and what is learned from training data."""

import copy
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gp_distributions import GaussianMixtures, Gaussians, MixedInputs, PointClouds
from gp_distributions.measures import Covariates
from gp_distributions.rows.clouds import pad_rows
from gp_distributions.rows.layout import Slots

RNG = np.random.default_rng(0)
NAMES = ["ann", "bob", "cem", "dee"]
CELLS = PointClouds.from_list({n: RNG.normal(size=(i + 1, 2)) for i, n in enumerate(NAMES)})
BLOOD = Gaussians.from_clouds(PointClouds(RNG.normal(size=(4, 9, 3))))
TUMOUR = GaussianMixtures(
    RNG.normal(size=(4, 2, 1)), np.ones((4, 2, 1, 1)), np.array([[1.0, 3.0]] * 4)
)
FRAME = pd.DataFrame(
    {
        "age": [50, 60, 70, 40],
        "arm": ["drug", "none", "drug", "none"],
        "dose": [0.1, 0.0, 0.3, 0.0],
    },
    index=NAMES,
)


def everything() -> MixedInputs:
    return MixedInputs(
        cells=CELLS, blood=BLOOD, covariates=FRAME, tumour=TUMOUR, weight=[70.0, 80.0, 60.0, 90.0]
    )


class TestReading:
    def test_blocks_keep_their_kinds(self) -> None:
        X = everything()
        assert len(X) == 4
        assert X.blocks["cells"] is CELLS
        assert isinstance(X.blocks["covariates"], Covariates)
        assert X.labels is not None
        assert X.labels.tolist() == NAMES
        assert (X.dtype, X.device.type) == (torch.float64, "cpu")

    def test_kinds_of_columns(self) -> None:
        frame = pd.DataFrame(
            {
                "integer": [1, 2],
                "nullable": pd.array([1, 2], dtype="Int64"),
                "decimal": [Decimal("0.5"), Decimal(1)],
                "text": ["a", "b"],
                "truth": [True, False],
                "coded": pd.Categorical([2, 2], categories=[1, 2, 3]),
            }
        )
        covariates = MixedInputs(table=frame).blocks["table"]
        assert isinstance(covariates, Covariates)
        numbers = [n for n, c in covariates.columns.items() if isinstance(c, torch.Tensor)]
        assert numbers == ["integer", "nullable", "decimal"]
        assert covariates.levels_of("text") == ("a", "b")
        assert covariates.levels_of("truth") == (False, True)
        assert covariates.levels_of("coded") == (1, 2, 3)  # declared, though only 2 occurs

    @pytest.mark.parametrize(
        ("given", "columns"),
        [
            ([1.0, 2.0], {"block": 2}),
            (["a", "b"], {"block": 2}),
            (torch.eye(2), {"0": 2, "1": 2}),
            (np.array([["a", "b"], ["c", "d"]]), {"0": 2, "1": 2}),
            (pd.Series([1.0, 2.0], name="dose"), {"dose": 2}),
            (pd.Series([1.0, 2.0]), {"block": 2}),
            ({"x": [1, 2], "y": ["a", "b"]}, {"x": 2, "y": 2}),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_arrays_series_and_dictionaries(self, given: Any, columns: dict[str, int]) -> None:
        covariates = MixedInputs(block=given).blocks["block"]
        assert isinstance(covariates, Covariates)
        assert {name: len(values) for name, values in covariates.columns.items()} == columns

    @pytest.mark.parametrize("declared", [[3, 7, 9], ["a", "b", "z"]])
    @pytest.mark.parametrize("alone", [False, True])
    def test_declared_categories_in_every_form(self, declared: list[Any], alone: bool) -> None:
        values = pd.Categorical([declared[0], declared[1], declared[0]], categories=declared)
        forms = [values, pd.Series(values), pd.Series(values, name="block")]
        if not alone:
            forms = [{"block": form} for form in forms] + [pd.DataFrame({"block": values})]
        for form in forms:
            covariates = MixedInputs(block=form).blocks["block"]
            assert isinstance(covariates, Covariates)
            assert covariates.levels_of("block") == tuple(declared)
            assert covariates.columns["block"].tolist() == list(values)

    def test_names_that_are_the_same_as_text(self) -> None:
        for block in ({1: [1.0], "1": [2.0]}, pd.DataFrame([[1.0, 2.0]], columns=[1, "1"])):
            with pytest.raises(ValueError, match="names differ as text"):
                MixedInputs(block=block)

    def test_frames_of_other_libraries(self) -> None:
        pa = pytest.importorskip("pyarrow")
        table = pa.table({"age": [50, 60], "arm": ["a", "b"], "smokes": [True, False]})
        covariates = MixedInputs(table=table).blocks["table"]
        assert covariates == MixedInputs(table=pd.DataFrame(table.to_pydict())).blocks["table"]

    def test_a_tensor_keeps_its_gradient(self) -> None:
        dose = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
        MixedInputs(dose=dose).pack().sum().backward()
        assert dose.grad is not None
        assert dose.grad.tolist() == [1.0, 1.0]  # deviation 1

    @pytest.mark.parametrize(
        ("blocks", "message"),
        [
            ({"cells": CELLS, "age": [1.0]}, r"one length, got \{'cells': 4, 'age': 1\}"),
            ({"cells": CELLS[0]}, "expected N distributions"),
            ({"arm": ["a", None]}, "Block 'arm': .* got None in row 1"),
            ({"t": FRAME.assign(age=[1, 2, np.inf, 3])}, "'age' of block 't'.*inf in row 'cem'"),
            ({"t": FRAME.assign(arm=["a", "b", None, "a"])}, "'arm' of block 't'.*row 'cem'"),
            ({"t": FRAME.assign(day=pd.Timestamp(0))}, "'day' of block 't'.*row 'ann'"),
            (
                {"t": FRAME.assign(age=[[1.0], [2.0], [3.0, 4.0], [5.0]])},
                r"got \[1\.0\] in row 'ann'.*bags with PointClouds\.from_list",
            ),
            ({"t": pd.DataFrame(index=NAMES)}, "expected columns of one length"),
            ({"t": {"x": [1], "y": [1, 2]}}, "columns of one length"),
            ({"cells": CELLS, "blood": BLOOD.to(torch.float32)}, "one dtype"),
        ],
    )
    def test_refuses(self, blocks: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            MixedInputs(**blocks)


class TestContainer:
    def test_indices(self) -> None:
        X = everything()
        for key in ([2, 0], np.array([2, 0]), torch.tensor([2, 0])):
            chosen = X[key]
            assert chosen.labels is not None
            assert chosen.labels.tolist() == ["cem", "ann"]
            assert torch.equal(chosen.pack(X.encoding), X.pack()[[2, 0]])
        assert len(X[[True, False, True, False]]) == 2
        assert X[-1:] == X[3:]
        assert X[-1] == X[3:]
        assert MixedInputs.concatenate(list(X)) == X
        assert copy.deepcopy(X) == pickle.loads(pickle.dumps(X)) == X

    def test_concatenation_pads_smaller_clouds(self) -> None:
        small, large = (MixedInputs(cells=PointClouds(np.ones((1, n, 2)))) for n in (2, 5))
        clouds = MixedInputs.concatenate([small, large]).blocks["cells"]
        assert isinstance(clouds, PointClouds)
        assert clouds.sizes.tolist() == [2, 5]

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ([{"cells": CELLS}, {"cells": BLOOD}], "expected one kind"),
            ([{"cells": CELLS}, {"cells": CELLS, "x": [1.0] * 4}], "same blocks"),
            ([{"x": ["a", "b"]}, {"x": [1.0]}], "the same columns in all parts, of the same kinds"),
            ([{"x": [1.0]}, {"x": [1.0]}, {"x": ["a"]}], "the same columns in all parts"),
        ],
    )
    def test_concatenation_of_different_blocks(self, parts: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            MixedInputs.concatenate([MixedInputs(**part) for part in parts])

    def test_concatenation_keeps_declared_levels(self) -> None:
        plain = MixedInputs(dose=["mid", "none"])
        levels = ["low", "mid", "high"]
        declared = MixedInputs(dose=pd.Categorical(["low"], categories=levels))
        for parts in ([plain, declared], [declared, plain]):
            joined = MixedInputs.concatenate(parts).blocks["dose"]
            assert isinstance(joined, Covariates)
            assert joined.levels_of("dose") == ("low", "mid", "high", "none")

    def test_single_precision(self) -> None:
        with pytest.warns(UserWarning, match="single precision"):
            cells = PointClouds(CELLS.points.float())
        X = MixedInputs(cells=cells, age=[1.0, 2.0, 3.0, 4.0])
        assert X.pack().dtype == torch.float32
        assert X.to(torch.float64).pack().dtype == torch.float64


class TestRows:
    def test_layout(self) -> None:
        X = everything()
        columns, rows = X.encoding.columns, X.pack()
        assert columns == {
            "cells": Slots(16, 6, 0, 3),
            "blood": tuple(range(12)),
            "covariates": (12, 13, 14),
            "tumour": Slots(16, 6, 3, 3),
            "weight": (15,),
        }
        assert rows.shape == (4, 16 + 4 * 6)
        assert torch.equal(rows[:, :12], BLOOD.pack())
        slots = rows[:, 16:].unflatten(-1, (4, 6))
        assert torch.equal(slots[..., :3].flatten(-2), CELLS.pack())
        assert torch.equal(slots[..., 3:].flatten(-2), TUMOUR.pack(4))

    def test_numbers_are_standardised_and_categories_counted(self) -> None:
        X = everything()
        rows = X.pack()
        age = np.array([50, 60, 70, 40])
        expected = (age - age.mean()) / age.std()
        np.testing.assert_allclose(rows[:, 12].numpy(), expected, rtol=1e-14)
        assert rows[:, 13].tolist() == [0.0, 1.0, 0.0, 1.0]

    def test_round_trip(self) -> None:
        X = everything()
        back = MixedInputs.unpack(X.pack(atoms=7), X.encoding)
        assert torch.equal(back.pack(X.encoding, atoms=7), X.pack(atoms=7))
        found = back.blocks["covariates"]
        assert isinstance(found, Covariates)
        np.testing.assert_allclose(found.columns["age"], FRAME["age"], rtol=1e-14)
        assert found.columns["arm"].tolist() == FRAME["arm"].tolist()

    def test_zeros_at_the_end_are_padding_of_every_block(self) -> None:
        X = everything()
        wider = pad_rows(X.pack(), X.pack().shape[-1] + 12)
        assert torch.equal(wider, X.pack(atoms=6))


class TestEncoding:
    def test_training_data_determine_it(self) -> None:
        train, test = everything()[:2], everything()[2:]
        rows = test.pack(train.encoding)
        assert rows[:, 12].tolist() == [3.0, -3.0]  # ages 70 and 40; mean 55, deviation 5

    def test_a_constant_number(self) -> None:
        encoding = MixedInputs(dose=[0.1, 0.1, 0.1]).encoding
        assert MixedInputs(dose=[0.1, 1.1]).pack(encoding).flatten().tolist() == pytest.approx(
            [0, 1]
        )

    def test_no_objects(self) -> None:
        X = everything()
        with pytest.raises(ValueError, match="at least one object from which to learn"):
            X[:0].pack()
        assert X[:0].pack(X.encoding).shape == (0, X.pack().shape[-1])

    @pytest.mark.parametrize("code", [-1.0, 3.0, float("nan")])
    def test_codes_that_are_no_levels(self, code: float) -> None:
        encoding = MixedInputs(arm=["a", "b", "c"]).encoding
        rows = torch.tensor([[0.0], [code]]).double()
        with pytest.raises(ValueError, match=r"'arm'.*codes of levels from 0 to 2, got "):
            MixedInputs.unpack(rows, encoding)

    def test_an_unseen_category_is_named_with_its_row(self) -> None:
        encoding = everything().encoding
        new = MixedInputs(**everything().blocks | {"covariates": FRAME.replace("none", "other")})
        message = r"'arm' of block 'covariates'.*\('drug', 'none'\), got 'other' in row 'bob'"
        with pytest.raises(ValueError, match=message):
            new.pack(encoding)

    def test_columns_are_found_by_name(self) -> None:
        X = everything()
        other = MixedInputs(**X.blocks | {"covariates": FRAME[["dose", "arm", "age"]]})
        assert torch.equal(other.pack(X.encoding), X.pack())

    @pytest.mark.parametrize(
        ("blocks", "message"),
        [
            ({"cells": CELLS}, r"Expected the blocks \['cells', 't'\]"),
            ({"cells": BLOOD, "t": FRAME}, "'cells': expected clouds of dimension 2"),
            ({"cells": CELLS, "t": BLOOD}, "'t': expected covariates"),
            ({"cells": CELLS, "t": FRAME[["age"]]}, "'t': expected the columns"),
            ({"cells": CELLS, "t": FRAME.assign(age="x")}, "'age'.*expected numbers.*got 'x'"),
            ({"cells": CELLS, "t": FRAME.assign(arm=1)}, r"'arm'.*expected categories.*got 1\.0"),
        ],
    )
    def test_refuses_other_inputs(self, blocks: dict[str, Any], message: str) -> None:
        encoding = MixedInputs(cells=CELLS, t=FRAME).encoding
        with pytest.raises(ValueError, match=message):
            MixedInputs(**blocks).pack(encoding)
