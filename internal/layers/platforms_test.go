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
		"go.mod":       "module example.com/m\n\ngo 1.26\n",
		"m.go":         "package m\n\nfunc f() int { return g() }\n",
		"g_darwin.go":  "package m\n\nfunc g() int { return \"text\" }\n",
		"g_linux.go":   "package m\n\nfunc g() int { return 1 }\n",
		"g_freebsd.go": "package m\n\nfunc g() int { return 1 }\n",
		// FreeBSD has an error in a test.
		"m_freebsd_test.go": "package m\n\nvar _ string = f()\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for goos, want := range map[string]string{"linux": "", "darwin": "g_darwin.go:3", "freebsd": "m_freebsd_test.go:3"} {
		_, err := typeCheck(goos, "arm64", "./...")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", goos, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error at %s", goos, err, want)
		}
	}
}
