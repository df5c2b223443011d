package cm

import (
	"cmp"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Config configures an Agent. All fields except CAGUID may be zero, which means the
// default. Timeouts are 5-bit codes: see wire.CMTimeout.
type Config struct {
	// CAGUID identifies this device. It must be unique in the network: peers use it to
	// detect duplicates and stale connections.
	CAGUID uint64
	// ResponseTimeout is the time for this agent and, set in its REQs, its peers to
	// answer. Default 20, which is 4.3 s.
	ResponseTimeout uint8
	// MaxRetries is the number of retransmissions of a message, 1 to 15. Default 15.
	MaxRetries uint8
	// MRATimeout is the service timeout in automatic MRAs. Default 24, which is 69 s.
	MRATimeout uint8
	// MinTimeout and MaxTimeout limit the peers' timeout codes. Defaults 8 (1 ms) and 26 (4.6 min).
	MinTimeout, MaxTimeout uint8
	// FirstCommID is the first communication ID. Default 1.
	FirstCommID uint32
	// MaxConns limits connections, also in time wait, and pending SIDR requests. Default 65536.
	MaxConns int
	// MaxListeners limits Listen. Default 4096.
	MaxListeners int
	// MaxBacklog is the maximum and the default backlog of Listen. Default 1024.
	MaxBacklog int
	// MaxOutbox limits the MADs queued for NextMAD; further ones are dropped. Default 8192.
	MaxOutbox int
	// MaxEvents limits the events queued for NextEvent; received MADs are dropped while
	// the queue is full. Default 8192.
	MaxEvents int
	// PKeys are the partitions this device is a member of. Default 0xFFFF alone.
	PKeys []uint16
	// MaxMTU is the largest path MTU accepted, 1 (256 bytes) to 5 (4096). Default 5.
	MaxMTU uint8
	// HopLimit is used for replies outside of a connection. Default 64.
	HopLimit uint8
	// RequireRTU establishes a connection by an RTU only, and not by data that arrives.
	RequireRTU bool
}

// withDefaults returns c with defaults for zero values and negative limits. ResponseTimeout,
// MaxRetries and MRATimeout are limited to the range of their fields in MADs. A timeout with code n
// is 4.096 µs * 2^n; MaxMTU 5 is the code of 4096 bytes.
func (c Config) withDefaults() Config {
	c.ResponseTimeout = min(cmp.Or(c.ResponseTimeout, 20), 31)
	c.MaxRetries = min(cmp.Or(c.MaxRetries, 15), 15)
	c.MRATimeout = min(cmp.Or(c.MRATimeout, 24), 31)
	c.MinTimeout, c.MaxTimeout = cmp.Or(c.MinTimeout, 8), cmp.Or(c.MaxTimeout, 26)
	c.MaxMTU, c.HopLimit = cmp.Or(c.MaxMTU, 5), cmp.Or(c.HopLimit, 64)
	c.FirstCommID = cmp.Or(c.FirstCommID, 1)
	c.MaxConns = cmp.Or(max(c.MaxConns, 0), 65536)
	c.MaxListeners = cmp.Or(max(c.MaxListeners, 0), 4096)
	c.MaxBacklog = cmp.Or(max(c.MaxBacklog, 0), 1024)
	c.MaxOutbox, c.MaxEvents = cmp.Or(max(c.MaxOutbox, 0), 8192), cmp.Or(max(c.MaxEvents, 0), 8192)
	if len(c.PKeys) == 0 {
		c.PKeys = []uint16{0xFFFF}
	}
	return c
}

// peerTimeout converts a timeout code of a peer, limited to MinTimeout..MaxTimeout.
func (c *Config) peerTimeout(code uint8) time.Duration {
	return wire.CMTimeout(min(max(code, c.MinTimeout), c.MaxTimeout))
}

// memberOf reports whether a P_Key of the device matches pkey: same partition, and one full member.
func (c *Config) memberOf(pkey uint16) bool {
	const partition, fullMember = 0x7FFF, 0x8000
	return slices.ContainsFunc(c.PKeys, func(own uint16) bool {
		return (own^pkey)&partition == 0 && (own|pkey)&fullMember != 0
	})
}
