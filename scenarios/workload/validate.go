package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// KeyError is an error in one key of a Config.
type KeyError struct {
	Key     string // as in a scenario: "rnr_retries", "services[1]"
	Problem string // with the permitted values
}

func (e KeyError) Error() string { return e.Key + ": " + e.Problem }

// ConfigError is the list of all errors in a Config.
type ConfigError []KeyError

// Error lists the errors, one per line.
func (e ConfigError) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Limits of a Config. They keep a typing error from using up all memory.
const (
	MaxRanks    = 1024
	MaxMessages = 1 << 24
	MaxBytes    = 64 << 20
	MaxDepth    = 4096
	maxRandom   = 1 << 20 // messages: random keeps a plan of them all
)

// Validate returns a ConfigError for values that do not fit the fabric. Omitted values are valid.
func (c *Config) Validate(hosts, rails int) error {
	v := validator{cfg: c}
	k, ok := kinds[c.Kind]
	if !ok {
		v.bad("kind", "%q is none of %s", c.Kind, join(Kinds()))
		return v.errs
	}
	v.ranks(hosts)
	v.traffic(k)
	v.transport(k)
	v.errorHandling(k, rails)
	v.collective(cmp.Or(c.Ranks, hosts))
	if len(v.errs) == 0 {
		return nil
	}
	return v.errs
}

// Kinds lists the kinds of workloads.
func Kinds() []Kind {
	return []Kind{Stream, PingPong, Random, Incast, AllToAll, Halo, Calls, Collective}
}

type validator struct {
	cfg  *Config
	errs ConfigError
}

// bad records an error about a key.
func (v *validator) bad(key, format string, args ...any) {
	v.errs = append(v.errs, KeyError{key, fmt.Sprintf(format, args...)})
}

// check records an error about a key unless ok.
func (v *validator) check(ok bool, key, format string, args ...any) {
	if !ok {
		v.bad(key, format, args...)
	}
}

// within checks that n, the value of key, is in low to high.
func (v *validator) within(key string, n, low, high int) {
	v.check(n >= low && n <= high, key, "%d is not in %d to %d", n, low, high)
}

// withinIfSet checks that n, the value of key, is in low to high or 0, which means left out.
func (v *validator) withinIfSet(key string, n, low, high int) {
	if n != 0 {
		v.within(key, n, low, high)
	}
}

// oneOf checks that got, the value of key, is one of the values that the kind of workload permits.
func (v *validator) oneOf(key, got string, of []string) {
	v.check(slices.Contains(of, got), key, "%q is not for %s, which takes %s", got, v.cfg.Kind, join(of))
}

// join lists names with commas.
func join[T ~string](all []T) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// ranks checks the number of ranks.
func (v *validator) ranks(hosts int) {
	const minRanks = 2
	n := cmp.Or(v.cfg.Ranks, hosts)
	switch {
	case n < minRanks:
		v.bad("ranks", "%d ranks: %s needs at least %d", n, v.cfg.Kind, minRanks)
	case n > hosts:
		v.bad("ranks", "%d ranks on %d hosts: there is one a host", n, hosts)
	case n > MaxRanks:
		v.bad("ranks", "%d ranks: at most %d", n, MaxRanks)
	}
}

// traffic checks services, operation, depth, and the number and size of messages.
func (v *validator) traffic(k rules) {
	c := v.cfg
	mostMessages, leastDepth := MaxMessages, 1
	if c.Kind == Random {
		mostMessages, leastDepth = maxRandom, 2 // it signals a request in every half of the queue
	}
	v.withinIfSet("messages", c.Messages, 1, mostMessages)
	v.withinIfSet("bytes", c.Bytes, 1, MaxBytes)
	v.withinIfSet("depth", c.Depth, leastDepth, MaxDepth)
	for i, s := range c.Services {
		v.oneOf(fmt.Sprintf("services[%d]", i), s, k.services)
	}
	v.check(len(c.Services) <= 1 || c.Kind == Random, "services", "only random takes more than one")
	if c.Op != "" {
		if len(k.ops) == 0 {
			v.bad("op", "%s chooses its operations itself: leave it out", c.Kind)
			return
		}
		v.oneOf("op", c.Op, k.ops)
	}
	v.service()
}

// service checks that the services (transports) of a workload support its operation, its message
// size, and reconnecting.
func (v *validator) service() {
	c := v.cfg
	for i, s := range c.Services {
		switch {
		case c.Kind == Random:
			// Its datagrams are limited to the MTU.
		case !reliable(s) && c.Op != "" && c.Op != OpSend:
			v.bad("op", "over %s a %s only sends; random writes over uc too", s, c.Kind)
		case s == ServiceUD && c.Bytes > v.datagramLimit():
			v.bad("bytes", "%d bytes do not fit a datagram of %d", c.Bytes, v.datagramLimit())
		}
		switch reconnects := c.Kind != Random && (c.Reconnect || c.Failover); {
		case reconnects && s == ServiceRD:
			v.bad(fmt.Sprintf("services[%d]", i), "rd has no connections to make anew: leave reconnect and failover out")
		case reconnects && !reliable(s):
			v.bad(fmt.Sprintf("services[%d]", i), "%s has no acknowledgements, which show where to resume: leave reconnect and failover out", s)
		}
	}
	if slices.Contains(c.Services, ServiceRD) {
		v.datagrams()
	}
}

// datagrams checks the limits of rd.
func (v *validator) datagrams() {
	c := v.cfg
	v.check(!slices.Contains(c.Services, ServiceUD), "services", "the datagrams of a NIC are of ud or of rd, not of both")
	v.check(len(c.MTU) == 0, "mtu", "datagrams of rd are as long as the links carry: leave it out")
	v.check(!c.excused(ExcuseGivesUp), "excuses", "gives_up is for connections, which rd has none of")
}

// datagramLimit is the longest message of a UD service.
func (v *validator) datagramLimit() int {
	if len(v.cfg.MTU) == 0 {
		return verbs.MTU4096.Bytes()
	}
	return slices.Min(v.cfg.MTU)
}

// transport checks MTUs, retries, times, and the use of the connection manager.
func (v *validator) transport(k rules) {
	c := v.cfg
	for i, n := range c.MTU {
		v.check(n > 0 && verbs.MTUFor(n).Bytes() == n, fmt.Sprintf("mtu[%d]", i),
			"%d is none of 256, 512, 1024, 2048, 4096", n)
	}
	v.check(len(c.MTU) <= 1 || c.Kind != Random, "mtu", "random has one MTU for both ends")
	if c.Retries != nil {
		v.within("retries", *c.Retries, 0, 7)
	}
	if c.RNRRetries != nil {
		v.within("rnr_retries", *c.RNRRetries, 0, 7)
	}
	for _, d := range []struct {
		key         string
		value, most time.Duration
	}{
		{"timeout", c.Timeout, verbs.AckTimeout(31)},
		{"rnr_timer", c.RNRTimer, rnrTimeOf(0)},
		{"pause", c.Pause, time.Hour},
		{"think", c.Think, time.Hour},
	} {
		v.check(d.value >= 0 && d.value <= d.most, d.key, "%v is not in 0 to %v", d.value, d.most)
	}
	v.check(!c.CM || k.cm, "cm",
		"%s connects its queue pairs itself; stream, pingpong and calls can use the connection manager", c.Kind)
	if c.CM || c.Kind == Calls {
		const why = "the connection manager chooses it: leave it out"
		v.check(len(c.MTU) == 0, "mtu", why)
		v.check(c.Timeout == 0, "timeout", why)
		v.check(c.RNRTimer == 0, "rnr_timer", why)
	}
	v.check(!c.CM || c.service() == ServiceRC || c.service() == ServiceSRQ,
		"cm", "connections through the connection manager are of rc or srq, not %s", c.service())
}

// errorHandling checks the settings reconnect, failover, pause and spin, which not every kind of
// workload supports, and the names of the excuses.
func (v *validator) errorHandling(k rules, rails int) {
	c := v.cfg
	v.check(!c.Reconnect || k.reconnect, "reconnect", "%s does not connect anew: its model follows one connection", c.Kind)
	if c.Failover {
		switch {
		case !k.reconnect || c.Kind == Calls:
			v.bad("failover", "%s stays on one rail", c.Kind)
		case slices.Contains(c.Services, ServiceXRC):
			v.bad("failover", "xrc stays on one rail: its receive queue belongs to one NIC")
		case rails < 2:
			v.bad("failover", "there is one rail only: fabric.rails gives hosts more")
		}
	}
	v.check(c.Pause == 0 || k.pause, "pause",
		"a receiver of %s cannot be slow: each message waits for the one before", c.Kind)
	v.check(c.Pause == 0 || c.Kind == Random || c.Op == "" || c.Op == OpSend, "pause",
		"only op: send waits for receives, %s does not", c.Op)
	v.check(c.Kind != Calls && c.Kind != Collective || !c.Spin, "spin", "%s does not poll", c.Kind)
	for i, e := range c.Excuses {
		v.oneOf(fmt.Sprintf("excuses[%d]", i), e, []string{ExcuseLoses, ExcuseDuplicates, ExcuseReorders, ExcuseGivesUp})
	}
}
