package rig

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// The GID table of a kernel begins with link-local and RoCEv1 entries.
func TestGIDEntryPrefersAddressOfBench(t *testing.T) {
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
		{table, "fd00::2", 3}, // no entry has the address
		{table[:2], "fd00::2", 1},
		{table[:1], "fd00::2", 0},
	} {
		r := &Rig{Bench: &conformance.Bench{Device: gidDevice{table: c.table}, Local: []netip.Addr{netip.MustParseAddr(c.local)}}}
		if err := Catch(func() {
			if got := r.GIDEntry(); got.Index != c.want {
				t.Errorf("%d entries, local address %s: entry %d, want %d", len(c.table), c.local, got.Index, c.want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
	if err := Catch(func() { (&Rig{Bench: &conformance.Bench{Device: gidDevice{}}}).GIDEntry() }); !conformance.IsViolation(err) {
		t.Errorf("empty table: %v", err)
	}
}

// gidDevice is a device with a GID table of 8 entries, some of them empty.
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
