package netns_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

// testPort is the UDP port of the test sockets.
const testPort = 4791

// socket opens a UDP socket on a host's NIC.
func socket(tb testing.TB, f *netns.Fabric, host string, rail int, ipv4 bool, port uint16) *net.UDPConn {
	tb.Helper()
	h := f.Host(host)
	var c *net.UDPConn
	must.Do(tb, h.NS.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.NICs[rail].Addr(ipv4), port)))
		return err
	}))
	tb.Cleanup(func() { c.Close() })
	return c
}

func addrOf(f *netns.Fabric, host string, rail int, ipv4 bool) netip.AddrPort {
	return netip.AddrPortFrom(f.Host(host).NICs[rail].Addr(ipv4), testPort)
}

func send(tb testing.TB, c *net.UDPConn, to netip.AddrPort, payload string) {
	tb.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(payload), to); err != nil {
		tb.Fatalf("send to %v: %v", to, err)
	}
}

// testTimeout is the timeout for expected packets.
const testTimeout = 30 * time.Second

// receive waits for one datagram.
func receive(tb testing.TB, c *net.UDPConn) (string, netip.AddrPort) {
	tb.Helper()
	buf := make([]byte, 1<<16)
	c.SetReadDeadline(time.Now().Add(testTimeout))
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		tb.Fatalf("receive at %v: %v", c.LocalAddr(), err)
	}
	return string(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// pending returns the received datagrams. veth and bridges deliver within the
// sender's system call, or right after it.
func pending(tb testing.TB, c *net.UDPConn, wait time.Duration) []string {
	tb.Helper()
	var got []string
	buf := make([]byte, 1<<16)
	for {
		c.SetReadDeadline(time.Now().Add(wait))
		n, _, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got
		}
		must.Do(tb, err)
		got = append(got, string(buf[:n]))
	}
}

// families are the address families that tests iterate over.
var families = map[string]bool{"IPv6": false, "IPv4": true}

// everyPair lets every host send one datagram to every other on every rail.
func everyPair(t *testing.T, f *netns.Fabric, ipv4 bool) {
	t.Helper()
	hosts := f.Topology().Hosts
	for rail := range hosts[0].NICs {
		conns := make([]*net.UDPConn, len(hosts))
		for i, h := range hosts {
			conns[i] = socket(t, f, h.Name, rail, ipv4, testPort)
		}
		for i, from := range hosts {
			for j, to := range hosts {
				if i == j {
					continue
				}
				want := fmt.Sprintf("%s to %s on rail %d", from.Name, to.Name, rail)
				send(t, conns[i], addrOf(f, to.Name, rail, ipv4), want)
				got, src := receive(t, conns[j])
				if got != want || src != addrOf(f, from.Name, rail, ipv4) {
					t.Fatalf("%s got %q from %v, want %q", to.Name, got, src, want)
				}
			}
		}
		for _, c := range conns {
			c.Close()
		}
	}
}
