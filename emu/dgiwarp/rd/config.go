package rd

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// Config configures a layer. All fields except Secret have defaults.
type Config struct {
	// Secret must be unpredictable and new each time that the host starts. Epochs,
	// incarnations and cookies are derived from it.
	Secret [16]byte
	// MaxPacket is the largest UDP payload that all paths carry.
	MaxPacket int
	Limits    Limits
	Timing    Timing
}

// Limits limit the memory of a layer.
type Limits struct {
	Peers int
	// Segments limits the unsent and unacknowledged segments of all peers, PeerSegments of one.
	Segments, PeerSegments int
	// StoredBytes limits the octets of segments received out of order, for all peers.
	StoredBytes int
	// Replies limits the queue of challenges and refusals. Further ones are dropped.
	Replies int
}

// Timing holds the times of section 9 of the specification.
type Timing struct {
	FirstTimeout time.Duration // of a retransmission, before a round trip was measured
	MinTimeout   time.Duration
	MaxTimeout   time.Duration
	// GiveUp is the sum of the timeouts of unanswered transmissions after which the
	// peer counts as lost. Time in which the layer was not called does not count,
	// unless it is so long that the receiver may have forgotten the flow (Idle - ReuseWithin).
	GiveUp time.Duration
	// BusyMin and BusyMax limit the interval at which a sender probes a busy receiver.
	// BusyLimit is the sum of those intervals after which the flow fails; 0 means that it does
	// not fail while the peer answers.
	BusyMin, BusyMax, BusyLimit time.Duration
	// AckDelay is the delay of an acknowledgement that waits for more segments, or for a data
	// packet to carry it.
	AckDelay time.Duration
	// ReuseWithin is the time after the last packet of a peer in which its flow may be reused; Idle
	// the time after which a peer is removed; CookieSlot half of the lifetime of a cookie.
	ReuseWithin, Idle, CookieSlot time.Duration
}

// DefaultTiming returns the times of docs/spec/datagram-iwarp.md, section 9.
func DefaultTiming() Timing {
	return Timing{
		FirstTimeout: 10 * time.Millisecond, MinTimeout: time.Millisecond, MaxTimeout: time.Second, GiveUp: 10 * time.Second,
		BusyMin: time.Millisecond, BusyMax: 128 * time.Millisecond,
		AckDelay:    100 * time.Microsecond,
		ReuseWithin: 10 * time.Second, Idle: 30 * time.Second, CookieSlot: 5 * time.Second,
	}
}

const defaultMaxPacket = 1500 - 40 - 8 // Ethernet, IPv6

var defaultLimits = Limits{Peers: 1 << 16, Segments: 1 << 16, PeerSegments: wire.Window, StoredBytes: 1 << 24, Replies: 1 << 8}

// ErrConfig is wrapped by all errors about a Config.
var ErrConfig = errors.New("bad configuration of the reliable-datagram layer")

// withDefaults returns a copy with defaults for zero fields, also those of Limits and Timing, and
// validates it.
func (c Config) withDefaults() (Config, error) {
	c.MaxPacket = cmp.Or(c.MaxPacket, defaultMaxPacket)
	if c.MaxPacket < wire.MinPacket || c.MaxPacket > 1<<16-1 {
		return c, fmt.Errorf("%w: packets of %d octets are not in %d..65535", ErrConfig, c.MaxPacket, wire.MinPacket)
	}
	for _, group := range [...]struct{ values, defaults reflect.Value }{
		{reflect.ValueOf(&c.Limits).Elem(), reflect.ValueOf(defaultLimits)},
		{reflect.ValueOf(&c.Timing).Elem(), reflect.ValueOf(DefaultTiming())},
	} {
		for field, value := range group.values.Fields() {
			if value.IsZero() {
				value.Set(group.defaults.FieldByIndex(field.Index))
			}
			if value.Int() < 0 {
				return c, fmt.Errorf("%w: %s is negative", ErrConfig, field.Name)
			}
		}
	}
	t := &c.Timing
	// A receiver keeps a flow as long as its sender may use it, and longer than a cookie
	// is valid: otherwise an old cookie could start the flow a second time.
	if t.Idle < t.ReuseWithin+t.GiveUp || t.Idle <= 2*t.CookieSlot {
		return c, fmt.Errorf("%w: Idle (%v) must be at least ReuseWithin (%v) and GiveUp (%v) together, and more than two of CookieSlot (%v)",
			ErrConfig, t.Idle, t.ReuseWithin, t.GiveUp, t.CookieSlot)
	}
	return c, nil
}
