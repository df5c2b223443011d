package interop

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
)

// Family is an address family.
type Family string

// The address families of the cases.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Case is one run of a program between our device and the kernel's.
type Case struct {
	Protocol conformance.Protocol
	Tool     Tool
	Role     Role // ours
	Family   Family
	// Variant tells cases apart that differ in none of the others: "poll" or
	// "events", how both ends take completions; "persistent", a server that
	// serves two clients at a time; "qps", one receive queue for many queue pairs;
	// "many", connections at a time; "crc", polling, with MPA's CRC in every frame.
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
	many       = "many"
	withCRC    = "crc"
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
	switch c.Variant {
	case persistent:
		return 2
	case many:
		return 4
	default:
		return 1
	}
}

var (
	// Around the packets of the path MTU, 1024: less than one, exactly one, one
	// more byte, an odd number, and many.
	pingPongSizes = []int{1, 64, 1024, 1025, 3000, 65536}
	// A datagram is one packet.
	datagramSizes = []int{1, 64, 1024}
	// rping wants room for its heading, and one byte less than 64 KiB.
	pingSizes = []int{MinPingSize, 64, 1024, 1025, 3000, MaxPingSize}
	// udaddy's reply begins with a header of 40 bytes.
	udaddySizes   = []int{41, 100, 1024}
	ucmatoseSizes = []int{16, 100, 1024, 1025, 65536}
	rdmaSizes     = []int{RDMASize}
	// Around what a frame of siw's holds on a link of 1500 bytes, and with pads of
	// every length: of a read or a write 1428 over IPv4 and 1404 over IPv6, of a send
	// four less.
	iwarpPingSizes = []int{MinPingSize, 64, 1025, 1404, 1405, 1428, 1429, 3002, MaxPingSize}
	iwarpSendSizes = []int{16, 97, 1400, 1401, 1424, 1425, 3003, 65536}
)

// Cases returns the whole matrix of a provider, row by row.
func Cases(p conformance.Protocol) []Case {
	if p == conformance.IWARP {
		return iwarpCases()
	}
	l := list{protocol: p}
	for _, tool := range []Tool{RC, UC, UD, SRQ} {
		sizes := pingPongSizes
		if tool == UD {
			sizes = datagramSizes
		}
		l.add(tool, sizes, poll, events)
	}
	l.add(SRQ, pingPongSizes, manyQPs)
	l.add(RPing, pingSizes, poll, events, persistent)
	l.add(UDAddy, udaddySizes, poll, events)
	l.add(UCMatose, ucmatoseSizes, poll, events, many)
	l.add(RDMA, rdmaSizes, poll, events)
	return l.cases
}

// iwarpCases are the programs that connect by rdma_cm, over reliable connections:
// the others exchange what only InfiniBand has. The cases with a CRC come last,
// since the guest changes its device for them.
func iwarpCases() []Case {
	l := list{protocol: conformance.IWARP}
	l.add(RPing, iwarpPingSizes, poll, events, persistent)
	l.add(UCMatose, iwarpSendSizes, poll, events, many)
	l.add(RDMA, rdmaSizes, poll, events)
	l.add(RPing, iwarpPingSizes, withCRC)
	l.add(UCMatose, iwarpSendSizes, withCRC)
	l.add(RDMA, rdmaSizes, withCRC)
	return l.cases
}

// list is a matrix in the making.
type list struct {
	protocol conformance.Protocol
	cases    []Case
}

// add adds the rows of a tool: variants, roles and families, and in each all sizes.
func (l *list) add(tool Tool, sizes []int, variants ...string) {
	for _, variant := range variants {
		for _, role := range []Role{Client, Server} {
			for _, family := range []Family{IPv4, IPv6} {
				for _, size := range sizes {
					l.cases = append(l.cases, Case{Protocol: l.protocol, Tool: tool, Role: role, Family: family, Variant: variant, Size: size})
				}
			}
		}
	}
}

// Matching returns the cases whose name matches pattern as path.Match does,
// where a pattern of fewer parts matches all that begins with it.
func Matching(cases []Case, pattern string) ([]Case, error) {
	matching, err := conformance.MatchingNames(cases, pattern)
	if err == nil && len(matching) == 0 {
		err = fmt.Errorf("no case matches %q; they are named tool/role/family/variant/size, like %s", pattern, cases[0].Name())
	}
	return matching, err
}
