package interop

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// The cases are listed by hand: what is promised must not depend on how it is made.
func TestCasesAreComplete(t *testing.T) {
	for _, test := range []struct {
		protocol             conformance.Protocol
		tool, variants, size string
	}{
		{conformance.RoCE, "rc", "poll events", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "uc", "poll events", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "ud", "poll events", "1 64 1024"},
		{conformance.RoCE, "srq", "poll events qps", "1 64 1024 1025 3000 65536"},
		{conformance.RoCE, "rping", "poll events persistent", "23 64 1024 1025 3000 65535"},
		{conformance.RoCE, "udaddy", "poll events", "41 100 1024"},
		{conformance.RoCE, "ucmatose", "poll events many", "16 100 1024 1025 65536"},
		{conformance.RoCE, "rdma", "poll events", "16"},
		{conformance.IWARP, "rping", "poll events persistent crc", "23 64 1025 1404 1405 1428 1429 3002 65535"},
		{conformance.IWARP, "ucmatose", "poll events many crc", "16 97 1400 1401 1424 1425 3003 65536"},
		{conformance.IWARP, "rdma", "poll events crc", "16"},
	} {
		names := make(map[string]bool)
		for _, c := range Cases(test.protocol) {
			if names[c.Name()] {
				t.Errorf("%s is there twice", c.Name())
			}
			names[c.Name()] = true
			if c.Protocol != test.protocol {
				t.Errorf("%s is of %s", c.Name(), c.Protocol)
			}
		}
		for _, role := range []string{"client", "server"} {
			for _, family := range []string{"ipv4", "ipv6"} {
				for _, variant := range strings.Fields(test.variants) {
					for _, size := range strings.Fields(test.size) {
						if name := strings.Join([]string{test.tool, role, family, variant, size}, "/"); !names[name] {
							t.Errorf("%s: %s is missing", test.protocol, name)
						}
					}
				}
			}
		}
	}
}

// What a case needs of both devices.
func TestSetup(t *testing.T) {
	for _, c := range append(Cases(conformance.RoCE), Cases(conformance.IWARP)...) {
		setup, crc := c.setup(here4), c.Variant == "crc"
		var device guest.Device
		switch {
		case c.Protocol == conformance.RoCE:
			device = guest.RXE
		case crc:
			device = guest.SIWCRC
		default:
			device = guest.SIW
		}
		first := c.Protocol == conformance.IWARP && c.Tool == UCMatose && c.Role == Server
		if want := (Setup{here4, crc, first}); setup != want || c.device() != device {
			t.Errorf("%s %s: %+v against %s", c.Protocol, c.Name(), setup, c.device())
		}
	}
}

func TestMatching(t *testing.T) {
	for pattern, want := range map[string]int{
		"rc": 48, "rc/client": 24, "ud/*/ipv6": 12, "*/server/ipv4/events/64": 5, "ucmatose": 60, "rping/client/ipv6/persistent/65535": 1, "*": len(Cases(conformance.RoCE)),
	} {
		if got, err := Matching(Cases(conformance.RoCE), pattern); err != nil || len(got) != want {
			t.Errorf("%q matches %d cases, %v; want %d", pattern, len(got), err, want)
		}
	}
	for _, pattern := range []string{"xrc", "rc/[", ""} {
		if got, err := Matching(Cases(conformance.RoCE), pattern); err == nil {
			t.Errorf("%q matches %d cases and is no error", pattern, len(got))
		}
	}
}
