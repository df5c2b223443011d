package kernel

import (
	"strings"
	"testing"
)

func TestCasesAreComplete(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Cases() {
		if names[c.Name()] {
			t.Errorf("%s is there twice", c.Name())
		}
		names[c.Name()] = true
	}
	for _, role := range []string{"client", "server"} {
		for _, family := range []string{"ipv4", "ipv6"} {
			for _, variant := range []string{"poll", "events"} {
				for tool, sizes := range map[string]string{
					"rc": "1 64 1024 1025 3000 65536", "uc": "1 64 1024 1025 3000 65536", "srq": "1 64 1024 1025 3000 65536",
					"ud": "1 64 1024", "rping": "64 1024 1025 3000 65535",
				} {
					for _, size := range strings.Fields(sizes) {
						if name := strings.Join([]string{tool, role, family, variant, size}, "/"); !names[name] {
							t.Errorf("%s is missing", name)
						}
					}
				}
			}
		}
	}
}

func TestMatching(t *testing.T) {
	for pattern, want := range map[string]int{
		"rc": 48, "rc/client": 24, "ud/*/ipv6": 12, "*/server/ipv4/events/64": 5, "rping/client/ipv6/persistent/65535": 1, "*": len(Cases()),
	} {
		if got, err := Matching(Cases(), pattern); err != nil || len(got) != want {
			t.Errorf("%q matches %d cases, %v; want %d", pattern, len(got), err, want)
		}
	}
	for _, pattern := range []string{"xrc", "rc/[", ""} {
		if got, err := Matching(Cases(), pattern); err == nil {
			t.Errorf("%q matches %d cases and is no error", pattern, len(got))
		}
	}
}
