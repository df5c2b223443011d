package rig

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// A kernel's GID table begins with what no router carries.
func TestAddressOfTheBench(t *testing.T) {
	entry := func(i int, addr string, kind verbs.GIDType) verbs.GIDEntry {
		return verbs.GIDEntry{Index: i, GID: verbs.GIDFrom(netip.MustParseAddr(addr)), Type: kind}
	}
	table := []verbs.GIDEntry{
		entry(0, "fe80::1", verbs.GIDTypeRoCEv1), entry(1, "fe80::1", verbs.GIDTypeRoCEv2), entry(2, "10.0.0.1", verbs.GIDTypeRoCEv1),
		entry(3, "10.0.0.1", verbs.GIDTypeRoCEv2), entry(5, "fd00::1", verbs.GIDTypeRoCEv2),
	}
	for _, c := range []struct {
		table []verbs.GIDEntry
		local string
		want  int
	}{
		{table, "fd00::1", 5},
		{table, "10.0.0.1", 3},
		{table, "fe80::1", 1},
		{table, "fd00::2", 3}, // a partner's
		{table[:2], "fd00::2", 1},
		{table[:1], "fd00::2", 0},
	} {
		r := &Rig{Bench: &conformance.Bench{Device: gidDevice{table: c.table}, Local: []netip.Addr{netip.MustParseAddr(c.local)}}}
		if err := Caught(func() {
			if got := r.Address(); got.Index != c.want {
				t.Errorf("of %d entries, for %s: entry %d, want %d", len(c.table), c.local, got.Index, c.want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
	if err := Caught(func() { (&Rig{Bench: &conformance.Bench{Device: gidDevice{}}}).Address() }); !conformance.IsViolation(err) {
		t.Errorf("of an empty table: %v", err)
	}
}

// gidDevice is a device that has a GID table, with places that are free, and nothing else.
type gidDevice struct {
	verbs.Context
	table []verbs.GIDEntry
}

func (g gidDevice) QueryPort(uint8) (verbs.PortAttr, error) { return verbs.PortAttr{GIDs: 8}, nil }

func (g gidDevice) QueryGID(_ uint8, i int) (verbs.GIDEntry, error) {
	for _, e := range g.table {
		if e.Index == i {
			return e, nil
		}
	}
	return verbs.GIDEntry{}, verbs.ErrNotFound
}
