package main

import (
	"os"
	"strings"
	"testing"
)

// An error in a file of another platform, or in a test, is found; and only there.
func TestTypeCheckFindsErrorsOfOtherPlatforms(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "-mod=mod")
	for name, text := range map[string]string{
		"go.mod":      "module example.com/m\n\ngo 1.26\n",
		"m.go":        "package m\n\nfunc f() int { return g() }\n",
		"g_darwin.go": "package m\n\nfunc g() int { return \"text\" }\n",
		"g_linux.go":  "package m\n\nfunc g() int { return 1 }\n",
		// The test for Darwin has an error, too.
		"m_darwin_test.go": "package m\n\nvar _ string = 1\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for goos, wants := range map[string][]string{"linux": nil, "darwin": {"g_darwin.go:3", "m_darwin_test.go:3"}} {
		_, err := typeCheck(goos, "arm64", "./...")
		if (err == nil) != (wants == nil) {
			t.Errorf("%s: %v", goos, err)
		}
		for _, want := range wants {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error at %s", goos, err, want)
			}
		}
	}
}
