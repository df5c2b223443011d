package netns_test

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// needSoftRDMA skips with the probe's reason if the kernel has no software RDMA
// device.
func needSoftRDMA(t *testing.T, kind string) {
	t.Helper()
	needNamespaces(t)
	for _, c := range netns.Probe() {
		if c.Name != "kernel "+kind {
			continue
		}
		if c.State != netns.Yes {
			t.Skipf("kernel %s: %s; to have it: %s", kind, c.Reason, c.Cure)
		}
		return
	}
	t.Fatalf("the probe does not report kernel %s", kind)
}

// hasRDMADevice lists the devices in a namespace.
func hasRDMADevice(t *testing.T, ns *netns.NS, name string) (found bool) {
	t.Helper()
	must.Do(t, ns.Do(func() error {
		links, err := netlink.RdmaLinkList()
		for _, l := range links {
			found = found || l.Attrs.Name == name
		}
		return err
	}))
	return found
}

func TestRDMALinkAdd(t *testing.T) {
	for _, kind := range []string{"rxe", "siw"} {
		t.Run(kind, func(t *testing.T) {
			needSoftRDMA(t, kind)
			f := build(t, pair(t, topology.Options{}), netns.Options{})
			ns, name := f.Host("host0").NS, "fabtest_"+kind
			must.Do(t, netns.RDMALinkAdd(ns, kind, name, "rdma0"))
			if !hasRDMADevice(t, ns, name) {
				t.Errorf("%s was made and is not there", name)
			}
			err := netns.RDMALinkAdd(ns, kind, name, "rdma0")
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("added twice: %v, want an error that names %s", err, name)
			}
			must.Do(t, ns.Do(func() error { return netlink.RdmaLinkDel(name) }))
			eventually(t, name+" is deleted", func() bool { return !hasRDMADevice(t, ns, name) })
		})
	}
}

// The kernel deletes a device with its interface, so a killed lab leaves none.
func TestFabricCloseDeletesRDMALink(t *testing.T) {
	for _, kind := range []string{"rxe", "siw"} {
		t.Run(kind, func(t *testing.T) {
			needSoftRDMA(t, kind)
			witness := must.Get(netns.New())(t)
			defer witness.Close()
			f := must.Get(netns.Build(pair(t, topology.Options{}), netns.Options{}))(t)
			name := "fablost_" + kind
			err := netns.RDMALinkAdd(f.Host("host0").NS, kind, name, "rdma0")
			shared := err == nil && hasRDMADevice(t, witness, name)
			must.Do(t, f.Close())
			must.Do(t, err)
			if !shared {
				t.Skip("RDMA devices are private to namespaces here (rdma system set netns shared): the deletion cannot be observed")
			}
			eventually(t, name+" is deleted with the fabric", func() bool { return !hasRDMADevice(t, witness, name) })
		})
	}
}
