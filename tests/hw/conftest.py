"""What the tests on specs share."""

import pytest

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.load_spec import load_hw, problems


@pytest.fixture
def explain(tmp_path):
    """Check YAML text that must be refused; gives all messages without the folder."""

    def check(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        messages = [str(p).replace(f"{tmp_path}/", "") for p in problems(path)]
        with pytest.raises(SpecError) as error:
            load_hw(path)
        assert messages, "loading refuses it, the check finds nothing"
        what = messages[0].partition(";")[0]
        assert str(error.value).replace(f"{tmp_path}/", "").startswith(what)
        return messages

    return check
