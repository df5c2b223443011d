package device

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestAddressesKeepTheirPlaces(t *testing.T) {
	one, two, old := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::9")
	full := []verbs.GIDEntry{
		{GID: verbs.GIDFrom(one), Type: verbs.GIDTypeRoCEv2},
		{GID: verbs.GIDFrom(two), Index: 1, Type: verbs.GIDTypeRoCEv2},
		{GID: verbs.GIDFrom(old), Index: 2, Type: verbs.GIDTypeRoCEv1},
	}
	a := NewAddresses([]netip.Addr{one, two})
	if a.Set(one, true) || a.Set(old, false) || !slices.Equal(a.Table(full), full) {
		t.Error("what is as it was, or nobody's, has changed something")
	}
	if !a.Set(netip.MustParseAddr("::ffff:10.0.0.2"), false) || a.Set(two, false) || a.Has(1) || !a.Has(0) {
		t.Error("an address that went away is there")
	}
	want := []verbs.GIDEntry{full[0], {Index: 1}, full[2]}
	if got := a.Table(full); !slices.Equal(got, want) {
		t.Errorf("table %v, want %v", got, want)
	}
	if got := a.Present(); !slices.Equal(got, []netip.Addr{one}) {
		t.Errorf("present %v", got)
	}
	if !a.Set(two, true) || !slices.Equal(a.Table(full), full) {
		t.Error("an address that came back is not there")
	}
}
