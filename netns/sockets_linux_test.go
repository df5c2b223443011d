package netns_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

// plainSocket returns a UDP socket with DF set.
type plainSocket struct{ *net.UDPConn }

func dontFragment(t *testing.T, f *netns.Fabric, host string, ipv4 bool) plainSocket {
	t.Helper()
	s := plainSocket{socket(t, f, host, 0, ipv4, testPort)}
	raw := must.Get(s.SyscallConn())(t)
	var err error
	must.Do(t, raw.Control(func(fd uintptr) {
		// IP_PMTUDISC_PROBE ignores the path MTU that routers reported.
		if ipv4 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
		}
	}))
	must.Do(t, err)
	return s
}

// sendSegments sends one GSO packet with datagrams of segment bytes.
func (s plainSocket) sendSegments(t *testing.T, to netip.AddrPort, bytes, segment int) {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(2))
	binary.NativeEndian.PutUint64(oob, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(oob[8:], unix.SOL_UDP)
	binary.NativeEndian.PutUint32(oob[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(oob[16:], uint16(segment))
	if _, _, err := s.WriteMsgUDPAddrPort(make([]byte, bytes), oob, to); err != nil {
		t.Fatal(err)
	}
}
