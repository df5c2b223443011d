package deviations

import (
	"io/fs"
	"strings"
	"testing"
)

func TestEveryFileIsRead(t *testing.T) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		known, err := Of(strings.TrimSuffix(name, ".yaml"))
		if err != nil || len(known) == 0 {
			t.Errorf("%s: %v, %v", name, known, err)
		}
	}
	if known, err := Of("nobody"); known != nil || err != nil {
		t.Errorf("a device without a file: %v, %v", known, err)
	}
}

func TestWhatIsNoDeviation(t *testing.T) {
	for text, says := range map[string]string{
		"a/b/c: {}":                  "a deviation has a reason",
		"a/b/c: {reason: x, why: y}": "field why not found",
		"- a/b/c":                    "it has a case a key",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
