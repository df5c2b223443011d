package cm

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// Config is what an Agent is made of. The zero value of every field but CAGUID
// means its default. Timeouts are 5-bit codes: see mad.Timeout.
type Config struct {
	// CAGUID names this device to peers. Devices of one network differ in it:
	// peers tell duplicates and stale connections by it.
	CAGUID uint64
	// ResponseTimeout is how long this agent and, asked in its REQs, its peers
	// may take to answer. Default 20, which is 4.3 s.
	ResponseTimeout uint8
	// MaxRetries is how often a message is sent again, 1 to 15. Default 15.
	MaxRetries uint8
	// MRATimeout is the service time that automatic MRAs ask for. Default 24,
	// which is 69 s.
	MRATimeout uint8
	// MinTimeout and MaxTimeout bound the timeout codes that a peer may impose,
	// so that it can cause neither a storm nor a wait without end. Defaults 8
	// (1 ms) and 26 (4.6 min).
	MinTimeout, MaxTimeout uint8
	// FirstCommID is the first communication ID to be used. Default 1.
	FirstCommID uint32
	// MaxConns limits connections and pending lookups, those in time wait
	// included. Default 65536.
	MaxConns int
	// MaxListeners limits Listen. Default 4096.
	MaxListeners int
	// MaxBacklog limits the backlog that Listen may ask for, and is what it gets
	// if it asks for none. Default 1024.
	MaxBacklog int
	// MaxOutbox limits the MADs waiting for NextMAD; more are lost, as if by the
	// network. Default 8192.
	MaxOutbox int
	// MaxEvents limits the events waiting for NextEvent; while as many wait,
	// received MADs are lost. Default 8192.
	MaxEvents int
	// PKeys are the partitions this device is a member of. Default 0xFFFF alone.
	PKeys []uint16
	// MaxMTU is the largest path MTU accepted, 1 (256 bytes) to 5 (4096).
	// Default 5.
	MaxMTU uint8
	// HopLimit is that of answers to peers without a connection. Default 64.
	HopLimit uint8
	// ConsumerDREP leaves a DREQ to be answered by DisconnectReply, for
	// consumers that have private data to send with the DREP.
	ConsumerDREP bool
	// Defects imitate defective devices.
	Defects Defects
}

func (c Config) withDefaults() Config {
	orCode := func(v *uint8, def uint8) {
		if *v == 0 {
			*v = def
		}
	}
	orInt := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	orCode(&c.ResponseTimeout, 20)
	orCode(&c.MaxRetries, 15)
	orCode(&c.MRATimeout, 24)
	orCode(&c.MinTimeout, 8)
	orCode(&c.MaxTimeout, 26)
	orCode(&c.MaxMTU, 5)
	orCode(&c.HopLimit, 64)
	orInt(&c.MaxConns, 65536)
	orInt(&c.MaxListeners, 4096)
	orInt(&c.MaxBacklog, 1024)
	orInt(&c.MaxOutbox, 8192)
	orInt(&c.MaxEvents, 8192)
	c.ResponseTimeout = min(c.ResponseTimeout, 31)
	c.MRATimeout = min(c.MRATimeout, 31)
	c.MaxRetries = min(c.MaxRetries, 15)
	if c.FirstCommID == 0 {
		c.FirstCommID = 1
	}
	if len(c.PKeys) == 0 {
		c.PKeys = []uint16{0xFFFF}
	}
	return c
}

// peerTimeout is the time that a peer's timeout code stands for, within bounds.
func (c *Config) peerTimeout(code uint8) time.Duration {
	return mad.Timeout(min(max(code, c.MinTimeout), c.MaxTimeout))
}

// memberOf reports whether this device and a holder of pkey may talk: same
// partition, and not both limited members.
func (c *Config) memberOf(pkey uint16) bool {
	for _, own := range c.PKeys {
		if (own^pkey)&0x7FFF == 0 && (own|pkey)&0x8000 != 0 {
			return true
		}
	}
	return false
}
