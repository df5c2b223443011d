//go:build !(ibverbs && linux && cgo)

package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestErrorsWithoutTagSayHowToBuild(t *testing.T) {
	var p verbs.Provider = Provider{}
	_, listed := p.Devices()
	_, opened := p.Open("mlx5_0")
	for _, err := range []error{listed, opened} {
		if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("%v: want ErrNotSupported", err)
			continue
		}
		for _, hint := range []string{"apt install libibverbs-dev librdmacm-dev", "-tags ibverbs"} {
			if !strings.Contains(err.Error(), hint) {
				t.Errorf("%q does not contain %q", err, hint)
			}
		}
	}
	if !strings.Contains(opened.Error(), "mlx5_0") {
		t.Errorf("%q does not name the device", opened)
	}
	if Linked {
		t.Error("Linked is true without the tag")
	}
}
