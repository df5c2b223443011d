package interop

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// The cases are listed by hand: what is promised must not depend on how it is made.
func TestCasesAreComplete(t *testing.T) {
	for _, test := range []struct {
		provider             Provider
		tool, variants, size string
	}{
		{SoftRoCE, "rc", "poll events", "1 64 1024 1025 3000 65536"},
		{SoftRoCE, "uc", "poll events", "1 64 1024 1025 3000 65536"},
		{SoftRoCE, "ud", "poll events", "1 64 1024"},
		{SoftRoCE, "srq", "poll events qps", "1 64 1024 1025 3000 65536"},
		{SoftRoCE, "rping", "poll events persistent", "23 64 1024 1025 3000 65535"},
		{SoftRoCE, "udaddy", "poll events", "41 100 1024"},
		{SoftRoCE, "ucmatose", "poll events many", "16 100 1024 1025 65536"},
		{SoftRoCE, "rdma", "poll events", "16"},
		{SoftIWARP, "rping", "poll events persistent crc", "23 64 1025 1404 1405 1428 1429 3002 65535"},
		{SoftIWARP, "ucmatose", "poll events many crc", "16 97 1400 1401 1424 1425 3003 65536"},
		{SoftIWARP, "rdma", "poll events crc", "16"},
	} {
		names := make(map[string]bool)
		for _, c := range Cases(test.provider) {
			if names[c.Name()] {
				t.Errorf("%s is there twice", c.Name())
			}
			names[c.Name()] = true
			if c.Provider != test.provider {
				t.Errorf("%s is of %s", c.Name(), c.Provider)
			}
		}
		for _, role := range []string{"client", "server"} {
			for _, family := range []string{"ipv4", "ipv6"} {
				for _, variant := range strings.Fields(test.variants) {
					for _, size := range strings.Fields(test.size) {
						if name := strings.Join([]string{test.tool, role, family, variant, size}, "/"); !names[name] {
							t.Errorf("%s: %s is missing", test.provider, name)
						}
					}
				}
			}
		}
	}
}

// What a case needs of both devices.
func TestSetup(t *testing.T) {
	for _, c := range append(Cases(SoftRoCE), Cases(SoftIWARP)...) {
		setup, crc := c.setup(here4), c.Variant == "crc"
		var device guest.Device
		switch {
		case c.Provider == SoftRoCE:
			device = guest.RXE
		case crc:
			device = guest.SIWCRC
		default:
			device = guest.SIW
		}
		first := c.Provider == SoftIWARP && c.Tool == UCMatose && c.Role == Server
		if want := (Setup{here4, crc, first}); setup != want || c.device() != device {
			t.Errorf("%s %s: %+v against %s", c.Provider, c.Name(), setup, c.device())
		}
	}
}

func TestProviderIsAFlag(t *testing.T) {
	p := SoftRoCE
	if err := p.Set("softiwarp"); err != nil || p != SoftIWARP || p.String() != "softiwarp" {
		t.Errorf("set to softiwarp: %v, %v", p, err)
	}
	if err := p.Set("softib"); err == nil || p != SoftIWARP {
		t.Errorf("set to nonsense: %v, %v", p, err)
	}
}

func TestMatching(t *testing.T) {
	for pattern, want := range map[string]int{
		"rc": 48, "rc/client": 24, "ud/*/ipv6": 12, "*/server/ipv4/events/64": 5, "ucmatose": 60, "rping/client/ipv6/persistent/65535": 1, "*": len(Cases(SoftRoCE)),
	} {
		if got, err := Matching(Cases(SoftRoCE), pattern); err != nil || len(got) != want {
			t.Errorf("%q matches %d cases, %v; want %d", pattern, len(got), err, want)
		}
	}
	for _, pattern := range []string{"xrc", "rc/[", ""} {
		if got, err := Matching(Cases(SoftRoCE), pattern); err == nil {
			t.Errorf("%q matches %d cases and is no error", pattern, len(got))
		}
	}
}
