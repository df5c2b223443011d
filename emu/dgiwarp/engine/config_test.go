package engine

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A NIC that is configured with its addresses only has the port of the specification, and packets
// for Ethernet.
func TestConfigHasDefaults(t *testing.T) {
	n := must.Get(New(minimalConfig()))(t)
	if c := n.Config(); c.Port != wire.Port || c.LinkMTU != 1500 || c.FirstQPN == 0 {
		t.Errorf("port %d, MTU %d, first QPN %d", c.Port, c.LinkMTU, c.FirstQPN)
	}
}

// The limits of a configuration are checked exactly.
func TestNewChecksConfig(t *testing.T) {
	const narrowest = wire.MinPacket + link.UDPHeaderLen + link.IPv4HeaderLen
	const atMulticast = int(wire.MulticastQP) // the numbers of QPs end before it
	for _, tc := range []struct {
		name    string
		edit    func(*Config)
		invalid bool
	}{
		{"no address", func(c *Config) { c.GIDs = nil }, true},
		{"the narrowest link", func(c *Config) { c.LinkMTU = narrowest }, false},
		{"a narrower link", func(c *Config) { c.LinkMTU = narrowest - 1 }, true},
		{"negative Messages", func(c *Config) { c.Messages = -1 }, true},
		{"negative Records", func(c *Config) { c.Records = -1 }, true},
		{"negative MessageTime", func(c *Config) { c.MessageTime = -1 }, true},
		{"negative RecordTime", func(c *Config) { c.RecordTime = -1 }, true},
		{"negative ErrorRate", func(c *Config) { c.ErrorRate = -1 }, true},
		{"negative ErrorBurst", func(c *Config) { c.ErrorBurst = -1 }, true},
		{"a window of segments for a peer", func(c *Config) { c.RD.PeerSegments = wire.Window }, false},
		{"more segments for a peer", func(c *Config) { c.RD.PeerSegments = wire.Window + 1 }, true},
		{"the last QP numbers", func(c *Config) { c.FirstQPN, c.Limits.QPs = uint32(atMulticast-2), 2 }, false},
		{"QP numbers up to that of multicast", func(c *Config) { c.FirstQPN, c.Limits.QPs = uint32(atMulticast-2), 3 }, true},
		{"invalid limits", func(c *Config) { c.Limits.QPs = -1 }, true},
	} {
		c := minimalConfig()
		tc.edit(&c)
		_, err := New(c)
		if tc.invalid {
			must.Fail(t, tc.name, err, ErrConfig)
		} else if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// minimalConfig returns the configuration of a NIC with one IPv4 address.
func minimalConfig() Config {
	return Config{GIDs: []verbs.GIDEntry{{GID: verbs.GIDFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}))}}}
}
