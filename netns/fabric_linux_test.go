package netns_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestAllHostsReachEachOther(t *testing.T) {
	for name, top := range map[string]topology.Topology{
		"pair":               pair(t, topology.Options{Rails: 8}),
		"star":               star(t, 5, topology.Options{Rails: 2}),
		"lone host":          star(t, 1, topology.Options{}),
		"fat tree":           tree(t, 3, 2, 7, topology.Options{Rails: 2}),
		"fat tree, one leaf": tree(t, 1, 1, 3, topology.Options{}),
		"two switches":       twoSwitches(t),
	} {
		t.Run(name, func(t *testing.T) {
			f := build(t, top, netns.Options{})
			for _, ipv4 := range families {
				everyPair(t, f, ipv4)
			}
		})
	}
}

// twoSwitches returns a star with two switches in series.
func twoSwitches(t *testing.T) topology.Topology {
	top := star(t, 4, topology.Options{})
	top.Switches = append(top.Switches, topology.Switch{Name: "switch1", Tier: 1})
	for i := range top.Cables[2:] {
		top.Cables[2+i].B.Node = "switch1"
	}
	top.Cables = append(top.Cables, topology.Cable{A: topology.Port{Node: "switch0", Num: 9}, B: topology.Port{Node: "switch1", Num: 9}})
	must.Do(t, top.Validate())
	return top
}

// The kernel sends no frames of its own (ARP, neighbour discovery, multicast
// reports), not even in the first second of an interface. Otherwise frame
// counts would differ between runs.
func TestKernelSendsNoFramesOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, top := range map[string]topology.Topology{
		"pair":         pair(t, topology.Options{}),
		"star":         star(t, 4, topology.Options{Rails: 2}),
		"fat tree":     tree(t, 2, 2, 4, topology.Options{}),
		"two switches": twoSwitches(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := build(t, top, netns.Options{})
			time.Sleep(1200 * time.Millisecond)
			for _, p := range top.Ports() {
				if s := stats(t, f, p.String()); s != (netns.Stats{}) {
					t.Errorf("%v counted %+v before anyone sent", p, s)
				}
			}
			for _, ipv4 := range families {
				everyPair(t, f, ipv4)
			}
			want := uint64(2 * (len(top.Hosts) - 1))
			for _, h := range top.Hosts {
				for _, n := range h.NICs {
					s := stats(t, f, h.Name+"/"+n.Name)
					if s.RxPackets != want || s.TxPackets != want {
						t.Errorf("%s/%s sent %d and received %d packets, want %d and %[5]d", h.Name, n.Name, s.TxPackets, s.RxPackets, want)
					}
				}
			}
		})
	}
}

func stats(t *testing.T, f *netns.Fabric, port string) netns.Stats {
	t.Helper()
	return must.Get(f.Stats(port))(t)
}

func TestPacketsLargerThanMTUAreDropped(t *testing.T) {
	for name, top := range map[string]topology.Topology{
		"star": star(t, 3, topology.Options{Link: topology.Link{MTU: 8000}, Links: map[string]topology.Link{"host1": {MTU: 2000}}}),
		"leaf": tree(t, 1, 1, 3, topology.Options{Link: topology.Link{MTU: 8000}, Links: map[string]topology.Link{"host1": {MTU: 2000}}}),
	} {
		t.Run(name, func(t *testing.T) {
			f := build(t, top, netns.Options{})
			for _, ipv4 := range families {
				testMTU(t, f, ipv4)
			}
		})
	}
}

func testMTU(t *testing.T, f *netns.Fabric, ipv4 bool) {
	large, small := strings.Repeat("x", 7900), strings.Repeat("x", 1900)
	from := dontFragment(t, f, "host0", ipv4)
	to := dontFragment(t, f, "host1", ipv4)
	other := dontFragment(t, f, "host2", ipv4)

	send(t, from.UDPConn, addrOf(f, "host2", 0, ipv4), large)
	receive(t, other.UDPConn)
	// Packets larger than the MTU of host1's cable are dropped there, single or
	// as segments of a GSO packet, which a bridge does not check.
	send(t, from.UDPConn, addrOf(f, "host1", 0, ipv4), large)
	from.sendSegments(t, addrOf(f, "host1", 0, ipv4), 4*3000, 3000)
	send(t, from.UDPConn, addrOf(f, "host1", 0, ipv4), small)
	from.sendSegments(t, addrOf(f, "host1", 0, ipv4), 4*1000, 1000)
	sizes := ""
	for range 5 {
		s, _ := receive(t, to.UDPConn)
		sizes += fmt.Sprint(len(s), " ")
	}
	for _, s := range pending(t, to.UDPConn, quietFor) {
		sizes += fmt.Sprint(len(s), " ")
	}
	if want := "1900 1000 1000 1000 1000 "; sizes != want {
		t.Errorf("IPv4 %v: host1 got datagrams of %s, want %s", ipv4, sizes, want)
	}
	if _, err := to.WriteToUDPAddrPort([]byte(large), addrOf(f, "host0", 0, ipv4)); err == nil || !strings.Contains(err.Error(), unix.EMSGSIZE.Error()) {
		t.Errorf("IPv4 %v: host1 sent a packet larger than its MTU: %v", ipv4, err)
	}
	from.Close()
	to.Close()
	other.Close()
}

func TestBuildRejectsInvalidTopologies(t *testing.T) {
	change := func(do func(*topology.Topology)) topology.Topology {
		top := star(t, 3, topology.Options{})
		do(&top)
		return top
	}
	for _, c := range []struct {
		want string
		top  topology.Topology
	}{
		{"Linux takes names of up to 15 bytes", change(func(t *topology.Topology) {
			t.Hosts[1].NICs[0].Name, t.Cables[1].A.NIC = "a-very-long-name", "a-very-long-name"
		})},
		{"lo is taken", change(func(t *topology.Topology) { t.Hosts[1].NICs[0].Name, t.Cables[1].A.NIC = "lo", "lo" })},
		{"host2/rdma0: address fd00:fab::1 is that of host0/rdma0 too", change(func(t *topology.Topology) {
			t.Hosts[2].NICs[0].Addrs[0] = t.Hosts[0].NICs[0].Addrs[0]
		})},
		{"host2/rdma0: no cable is plugged in", change(func(t *topology.Topology) { t.Cables = t.Cables[:2] })},
		{"make it a user-space cable (Options.UserCable) or use netem", change(func(t *topology.Topology) { t.Cables[1].Link.Latency = time.Millisecond })},
		{"links mark no packets", change(func(t *topology.Topology) { t.Cables[1].Link.ECN.MaxPPM = 5 })},
	} {
		f, err := netns.Build(c.top, netns.Options{})
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for name, top := range map[string]topology.Topology{
		"Star64":      star(b, 64, topology.Options{}),
		"Star64x4":    star(b, 64, topology.Options{Rails: 4}),
		"FatTree8x64": tree(b, 8, 4, 64, topology.Options{}),
	} {
		b.Run(name, func(b *testing.B) {
			needNamespaces(b)
			for b.Loop() {
				f := must.Get(netns.Build(top, netns.Options{}))(b)
				f.Close()
			}
		})
	}
}

// Where br_netfilter is loaded, frames would pass the hooks of a firewall in each bridge.
func TestBridgesHaveNoFirewall(t *testing.T) {
	f := build(t, star(t, 2, topology.Options{}), netns.Options{})
	for _, family := range []string{"ip", "ip6"} {
		name := "/proc/sys/net/bridge/bridge-nf-call-" + family + "tables"
		var text []byte
		err := f.Core().Do(func() error {
			file, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			text, err = io.ReadAll(file)
			return err
		})
		switch {
		case errors.Is(err, os.ErrNotExist):
			t.Skip("this kernel has not loaded br_netfilter")
		case errors.Is(err, unix.EROFS):
			t.Skip("/proc/sys is read-only")
		case err != nil || string(text) != "0\n":
			t.Errorf("%s is %q: %v", name, text, err)
		}
	}
}
