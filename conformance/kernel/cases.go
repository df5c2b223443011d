package kernel

import (
	"fmt"
	"path"
)

// Family is an address family.
type Family string

// The address families that RoCEv2 runs over.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Case is one meeting of our device and the kernel's.
type Case struct {
	Tool   Tool
	Role   Role // ours
	Family Family
	// Variant tells cases apart that differ in neither of the others: "poll" or
	// "events", how both ends take completions; "persistent", a server that
	// serves two clients at a time; "qps", one receive queue for many queue pairs.
	Variant string
	Size    int
}

// Row names what the sizes of a case have in common.
func (c Case) Row() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.Tool, c.Role, c.Family, c.Variant)
}

// Name names the case: tool/role/family/variant/size.
func (c Case) Name() string { return fmt.Sprintf("%s/%d", c.Row(), c.Size) }

// Variants.
const (
	poll       = "poll"
	events     = "events"
	persistent = "persistent"
	manyQPs    = "qps"
)

// manyQPCount is ibv_srq_pingpong's own default.
const manyQPCount = 16

// qps is how many queue pairs a case of SRQ has. One lets every message be
// different and be followed through the peer's buffer.
func (c Case) qps() int {
	switch {
	case c.Tool != SRQ:
		return 0
	case c.Variant == manyQPs:
		return manyQPCount
	default:
		return 1
	}
}

// connections is how many clients a case has.
func (c Case) connections() int {
	if c.Variant == persistent {
		return 2
	}
	return 1
}

var (
	// Around the packets of the path MTU, 1024: less than one, exactly one, one
	// more byte, an odd number, and many.
	pingPongSizes = []int{1, 64, 1024, 1025, 3000, 65536}
	// A datagram is one packet.
	datagramSizes = []int{1, 64, 1024}
	// rping wants room for its heading, and one byte less than 64 KiB.
	pingSizes = []int{64, 1024, 1025, 3000, MaxPingSize}
	// udaddy's reply begins with a header of 40 bytes.
	udaddySizes = []int{41, 100, 1024}
)

// Cases returns the whole matrix, row by row.
func Cases() []Case {
	var all []Case
	add := func(tool Tool, variant string, sizes []int) {
		for _, role := range []Role{Client, Server} {
			for _, family := range []Family{IPv4, IPv6} {
				for _, size := range sizes {
					all = append(all, Case{Tool: tool, Role: role, Family: family, Variant: variant, Size: size})
				}
			}
		}
	}
	for _, tool := range []Tool{RC, UC, UD, SRQ} {
		sizes := pingPongSizes
		if tool == UD {
			sizes = datagramSizes
		}
		add(tool, poll, sizes)
		add(tool, events, sizes)
	}
	add(SRQ, manyQPs, pingPongSizes)
	add(RPing, poll, pingSizes)
	add(RPing, events, pingSizes)
	add(RPing, persistent, pingSizes)
	add(UDAddy, poll, udaddySizes)
	add(UDAddy, events, udaddySizes)
	return all
}

// Matching returns the cases whose name matches pattern as path.Match does,
// where a pattern of fewer parts matches all that begins with it.
func Matching(cases []Case, pattern string) ([]Case, error) {
	var matching []Case
	for _, c := range cases {
		for name := c.Name(); name != "."; name = path.Dir(name) {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			if ok {
				matching = append(matching, c)
				break
			}
		}
	}
	if len(matching) == 0 {
		return nil, fmt.Errorf("no case matches %q; they are named tool/role/family/variant/size, like %s", pattern, cases[0].Name())
	}
	return matching, nil
}
