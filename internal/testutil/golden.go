package testutil

import (
	"bytes"
	"os"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Golden fails the test if the file does not contain got. With update it writes got to it first.
func Golden(t *testing.T, file string, got []byte, update bool) {
	t.Helper()
	if update {
		must.Do(t, os.WriteFile(file, got, 0o666))
	}
	want := must.Get(os.ReadFile(file))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the generated text\n%s\nIf the change is intended, repeat the test with -update", file, got)
	}
}
