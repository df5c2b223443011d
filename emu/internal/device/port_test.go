package device

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestRemovedAddressLeavesGIDEntryEmpty(t *testing.T) {
	one, two, old := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::9")
	full := []verbs.GIDEntry{
		{GID: verbs.GIDFrom(one), Type: verbs.GIDTypeRoCEv2},
		{GID: verbs.GIDFrom(two), Index: 1, Type: verbs.GIDTypeRoCEv2},
		{GID: verbs.GIDFrom(old), Index: 2, Type: verbs.GIDTypeRoCEv1},
	}
	a := NewPortAddrs([]netip.Addr{one, two})
	if a.SetPresent(one, true) || a.SetPresent(old, false) || !slices.Equal(a.FilterGIDs(full), full) {
		t.Error("a known state, or an address of another port, changed the table")
	}
	if !a.SetPresent(netip.MustParseAddr("::ffff:10.0.0.2"), false) || a.SetPresent(two, false) {
		t.Error("a removed address is present")
	}
	want := []verbs.GIDEntry{full[0], {Index: 1}, full[2]}
	if got := a.FilterGIDs(full); !slices.Equal(got, want) {
		t.Errorf("table %v, want %v", got, want)
	}
	if got := a.Present(); !slices.Equal(got, []netip.Addr{one}) {
		t.Errorf("present %v", got)
	}
	if !a.SetPresent(two, true) || !slices.Equal(a.FilterGIDs(full), full) {
		t.Error("an address that was added again is missing")
	}
}
