package nics

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns/topology"
)

func TestFromEnvReadsEnvVars(t *testing.T) {
	fabric := must.Get(topology.Star(3, topology.Options{Rails: 2}))(t)
	for i, h := range fabric.Hosts {
		vars := EnvVars(&fabric, h)
		got, err := read(func(name string) string {
			for _, v := range vars {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		})
		if err != nil || got.Name != h.Name || len(got.NICs) != 2 {
			t.Fatalf("%s: %+v, %v", h.Name, got, err)
		}
		for k, n := range got.NICs {
			drawn := h.NICs[k]
			if n.Name != drawn.Name || n.IPv6 != drawn.Addr(false) || n.IPv4 != drawn.Addr(true) {
				t.Errorf("%s: %+v, drawn as %+v", h.Name, n, drawn)
			}
			if len(n.IPv6Peers) != 3 || n.IPv6Peers[i] != n.IPv6 || !slices.Contains(n.IPv4Peers, n.IPv4) {
				t.Errorf("%s: peers %v and %v", h.Name, n.IPv6Peers, n.IPv4Peers)
			}
		}
	}
}

func TestFromEnvOutsideOfFabric(t *testing.T) {
	if _, err := read(func(string) string { return "" }); !errors.Is(err, ErrNoFabric) {
		t.Error(err)
	}
	_, err := read(func(name string) string {
		return map[string]string{hostVar: "host0", nicsVar: "rdma0", "FABRICTEST_RDMA0_IPV6": "fd00::x"}[name]
	})
	if err == nil || !strings.Contains(err.Error(), "FABRICTEST_RDMA0_") {
		t.Errorf("a damaged address: %v", err)
	}
}
