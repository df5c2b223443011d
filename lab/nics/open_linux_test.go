package nics

import (
	"net/netip"
	"testing"
)

func TestOpenAsEveryProvider(t *testing.T) {
	n := NIC{Name: "rdma0", IPv6: netip.IPv6Loopback()}
	for _, p := range Names() {
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
