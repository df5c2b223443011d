package capture

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Filter selects packets that match all non-empty fields. A field matches if one value does.
type Filter struct {
	QPs        []uint32 // destination QP, or source QP of a datagram
	PSNs       []Range
	Ops        []string // glob patterns, see ValidateOpPattern
	Hosts      []string // addresses, prefixes or names
	OnlyMarked bool     // only packets with a mark
}

// Select adds the values of the options --qp and --psn to the filter, and checks those of --op.
func (f *Filter) Select(qps, psns []string) error {
	for _, s := range qps {
		qp, err := Parse24(s)
		if err != nil {
			return cli.Errorf("--qp: %w", err)
		}
		f.QPs = append(f.QPs, qp)
	}
	for _, s := range psns {
		r, err := ParseRange(s)
		if err != nil {
			return cli.Errorf("--psn: %w", err)
		}
		f.PSNs = append(f.PSNs, r)
	}
	for _, s := range f.Ops {
		if err := ValidateOpPattern(s); err != nil {
			return cli.Errorf("--op: %w", err)
		}
	}
	return nil
}

// Range is an inclusive range of 24-bit numbers. If First > Last, it wraps.
type Range struct{ First, Last uint32 }

// ParseRange parses a range of 24-bit numbers: "7", "7-12", or "0xfffff0-3", which wraps.
func ParseRange(s string) (Range, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, err := Parse24(first)
	if err != nil {
		return Range{}, err
	}
	b, err := Parse24(last)
	return Range{a, b}, err
}

// Parse24 parses a 24-bit number such as a QPN or PSN, decimal or with a prefix such as 0x.
func Parse24(s string) (uint32, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 0, 24)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of 24 bits, such as 17 or 0x11", s)
	}
	return uint32(v), nil
}

// ValidateOpPattern checks the syntax of a glob pattern for operation names.
func ValidateOpPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q is no pattern such as 'RC SEND*' or '*READ*': %w", pattern, err)
	}
	return nil
}

// contains reports whether v is in the range, which may wrap.
func (r Range) contains(v uint32) bool {
	if r.First > r.Last {
		return v >= r.First || v <= r.Last
	}
	return v >= r.First && v <= r.Last
}

// match reports whether the filter selects packet p. The stream s has the host names.
func (f *Filter) match(s *Stream, p *Packet) bool {
	if f.OnlyMarked && len(p.Marks) == 0 {
		return false
	}
	if len(f.Hosts) > 0 && !f.matchHost(s, p.IP.Src) && !f.matchHost(s, p.IP.Dst) {
		return false
	}
	if len(f.QPs) == 0 && len(f.PSNs) == 0 && len(f.Ops) == 0 {
		return true
	}
	if slices.ContainsFunc(p.PDUs, f.matchPDU) {
		return true
	}
	// For packets without PDUs, Ops applies to the protocol.
	return len(p.PDUs) == 0 && len(f.QPs) == 0 && len(f.PSNs) == 0 && f.matchOp(p.Protocol)
}

// matchPDU reports whether a PDU matches QPs (by the destination or, in a DETH, the source), PSNs
// and Ops.
func (f *Filter) matchPDU(d PDU) bool {
	r, ok := d.(*RoCE)
	if !ok {
		return len(f.QPs) == 0 && len(f.PSNs) == 0 && f.matchOp(d.Op())
	}
	if len(f.QPs) > 0 && !slices.Contains(f.QPs, r.BTH.DestQP) && (r.DETH.SrcQP == 0 || !slices.Contains(f.QPs, r.DETH.SrcQP)) {
		return false
	}
	if len(f.PSNs) > 0 && !slices.ContainsFunc(f.PSNs, func(p Range) bool { return p.contains(uint32(r.BTH.PSN)) }) {
		return false
	}
	return len(f.Ops) == 0 || f.matchOp(append(r.aliases(), r.Op())...)
}

// matchOp reports whether one of the names matches Ops. It ignores case and treats "_" as a space.
func (f *Filter) matchOp(names ...string) bool {
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "_")) }
	for _, pattern := range f.Ops {
		for _, name := range names {
			if ok, _ := path.Match(fold(pattern), fold(name)); ok {
				return true
			}
		}
	}
	return false
}

// matchHost reports whether Hosts has an address, a prefix with it, or its host name.
func (f *Filter) matchHost(s *Stream, a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	name, named := s.Host(a)
	return slices.ContainsFunc(f.Hosts, func(want string) bool {
		if addr, err := netip.ParseAddr(want); err == nil {
			return addr == a
		}
		if prefix, err := netip.ParsePrefix(want); err == nil {
			return prefix.Contains(a)
		}
		return named && strings.EqualFold(name, want)
	})
}
