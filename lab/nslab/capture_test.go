package nslab

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestTrimCaptureLeavesWholePackets(t *testing.T) {
	block := func(n byte) []byte { return append([]byte{6, 0, 0, 0, n, 0, 0, 0}, make([]byte, n-8)...) }
	whole := append(block(28), block(64)...)
	name := filepath.Join(t.TempDir(), "host0.pcapng")
	if err := trimCapture(name); err != nil {
		t.Errorf("there is none: %v", err)
	}
	for cut := range 40 {
		if err := os.WriteFile(name, append(whole[:len(whole):len(whole)], block(40)[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := trimCapture(name); err != nil {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, whole) {
			t.Errorf("cut after %d bytes: %d bytes stay, want %d (%v)", cut, len(got), len(whole), err)
		}
	}
	if err := os.WriteFile(name, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimCapture(name); err == nil {
		t.Error("a block without a length is taken for one")
	}
}
