package udplink

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// Other programs send packets with options, without DF, and fragments.
func TestDropFragmentable(t *testing.T) {
	const tooLong = 65000 // does not fit the path below
	for _, tc := range []struct {
		name    string
		options []byte
		pmtu    int
		size    int
		plain   bool
	}{
		{"as everyone", nil, unix.IP_PMTUDISC_DO, 100, true},
		{"options", []byte{1, 1, 1, 1}, unix.IP_PMTUDISC_DO, 100, false},
		{"fragments allowed", nil, unix.IP_PMTUDISC_DONT, 100, false},
		{"options and fragments allowed", []byte{1, 1, 1, 1}, unix.IP_PMTUDISC_DONT, tooLong, false},
	} {
		for _, plainOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tc.name, plainOnly), func(t *testing.T) {
				l := openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0"), DropFragmentable: plainOnly, PatchIPID: noFix})
				fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
				defer unix.Close(fd)
				must.Do(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, tc.pmtu))
				if tc.options != nil {
					must.Do(t, unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string(tc.options)))
				}
				to := &unix.SockaddrInet4{Port: int(local(l).Port()), Addr: local(l).Addr().As4()}
				must.Do(t, unix.Sendto(fd, pattern(3, tc.size), 0, to))
				// What a plain one brings comes behind it, and so ends the wait.
				sendAll(t, l, link.Datagram{Dst: local(l), Payload: pattern(9, 8)})
				got := 1
				if !plainOnly || tc.plain {
					got = 2
				}
				ds := recvN(t, l, got, 8)
				if first := len(ds[0].Payload); got == 2 && first != tc.size || got == 1 && first != 8 {
					t.Errorf("%d bytes come first", first)
				}
			})
		}
	}
}
