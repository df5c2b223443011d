package link

import (
	"net/netip"
	"testing"
)

func TestIPBytesDependsOnDestinationFamily(t *testing.T) {
	for _, tc := range []struct {
		dst  string
		is4  bool
		want int
	}{
		{"10.0.0.1:4791", true, 128},
		{"[::ffff:10.0.0.1]:4791", true, 128},
		{"[fd00::1]:4791", false, 148},
	} {
		d := Datagram{Dst: netip.MustParseAddrPort(tc.dst), Payload: make([]byte, 100)}
		if d.Is4() != tc.is4 || d.IPBytes() != tc.want {
			t.Errorf("%s: Is4 %v, IPBytes %d, want %v, %d", tc.dst, d.Is4(), d.IPBytes(), tc.is4, tc.want)
		}
	}
}
