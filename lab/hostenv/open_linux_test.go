package hostenv

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestNICsOpenAsAnyProvider(t *testing.T) {
	n := NIC{Name: "rdma0", IPv6: netip.IPv6Loopback()}
	for _, p := range nics.Names() {
		d, err := n.OpenAs(p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if info := d.Info(); info.Provider != p || info.Name != "rdma0" {
			t.Errorf("%+v", info)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.OpenAs("mlx5"); err == nil {
		t.Error("there is an mlx5")
	}
}
