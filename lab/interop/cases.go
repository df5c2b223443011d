package interop

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/kernel"
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
	Variant  string // one of the constants below
	Size     int
}

// Row returns the name without the size: tool/role/family/variant.
func (c Case) Row() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.Tool, c.Role, c.Family, c.Variant)
}

// Name returns the name of the case: tool/role/family/variant/size.
func (c Case) Name() string { return fmt.Sprintf("%s/%d", c.Row(), c.Size) }

// Variants.
const (
	poll       = "poll"       // both ends poll for completions
	events     = "events"     // both ends wait for completion events
	persistent = "persistent" // the server serves two clients at the same time
	manyQPs    = "qps"        // many queue pairs share a receive queue
	many       = "many"       // several connections at the same time
	withCRC    = "crc"        // poll, with MPA's CRC in every frame
)

// manyQPCount is the default of ibv_srq_pingpong.
const manyQPCount = 16

// qps returns the number of queue pairs of a case of SRQ (ibv_srq_pingpong); 0 for other tools.
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

// connections returns the number of clients that a case has at the same time.
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
	// Up to and beyond one packet of the path MTU, 1024.
	pingPongSizes = []int{1, 64, 1024, 1025, 3000, 65536}
	// A datagram is one packet.
	datagramSizes = []int{1, 64, 1024}
	pingSizes     = []int{MinPingSize, 64, 1024, 1025, 3000, MaxPingSize}
	// udaddy's reply begins with a header of 40 bytes.
	udaddySizes   = []int{41, 100, 1024}
	ucmatoseSizes = []int{16, 100, 1024, 1025, 65536}
	rdmaSizes     = []int{RDMASize}
	// Around the maximum data of a frame of siw on a link of 1500 bytes, and with pads of
	// every length: 1428 of a read or write over IPv4 and 1404 over IPv6, of a send four less.
	iwarpPingSizes = []int{MinPingSize, 64, 1025, 1404, 1405, 1428, 1429, 3002, MaxPingSize}
	iwarpSendSizes = []int{16, 97, 1400, 1401, 1424, 1425, 3003, 65536}
)

// matrix has the tools of a protocol with their sizes and variants. Only the tools that connect
// by rdma_cm, over reliable connections, work with iWARP. The cases with a CRC come last, because
// the guest changes its device for them.
var matrix = []struct {
	protocol conformance.Protocol
	tool     Tool
	sizes    []int
	variants []string
}{
	{conformance.RoCE, RC, pingPongSizes, []string{poll, events}},
	{conformance.RoCE, UC, pingPongSizes, []string{poll, events}},
	{conformance.RoCE, UD, datagramSizes, []string{poll, events}},
	{conformance.RoCE, SRQ, pingPongSizes, []string{poll, events, manyQPs}},
	{conformance.RoCE, RPing, pingSizes, []string{poll, events, persistent}},
	{conformance.RoCE, UDAddy, udaddySizes, []string{poll, events}},
	{conformance.RoCE, UCMatose, ucmatoseSizes, []string{poll, events, many}},
	{conformance.RoCE, RDMA, rdmaSizes, []string{poll, events}},
	{conformance.IWARP, RPing, iwarpPingSizes, []string{poll, events, persistent}},
	{conformance.IWARP, UCMatose, iwarpSendSizes, []string{poll, events, many}},
	{conformance.IWARP, RDMA, rdmaSizes, []string{poll, events}},
	{conformance.IWARP, RPing, iwarpPingSizes, []string{withCRC}},
	{conformance.IWARP, UCMatose, iwarpSendSizes, []string{withCRC}},
	{conformance.IWARP, RDMA, rdmaSizes, []string{withCRC}},
}

// Cases returns all cases of a protocol, in the order of matrix, which lists tools with their
// variants and sizes.
func Cases(p conformance.Protocol) (cases []Case) {
	for _, m := range matrix {
		if m.protocol != p {
			continue
		}
		for _, variant := range m.variants {
			for _, role := range []Role{Client, Server} {
				for _, family := range []Family{IPv4, IPv6} {
					for _, size := range m.sizes {
						cases = append(cases, Case{p, m.tool, role, family, variant, size})
					}
				}
			}
		}
	}
	return cases
}

// Matching returns the cases whose names match a pattern of path.Match. A pattern with fewer
// parts matches all names that begin with it.
func Matching(cases []Case, pattern string) ([]Case, error) {
	matching, err := conformance.MatchingNames(cases, pattern)
	if err == nil && len(matching) == 0 {
		err = fmt.Errorf("no case matches %q; they are named tool/role/family/variant/size, like %s", pattern, cases[0].Name())
	}
	return matching, err
}

// device returns the device of the guest in a case.
func (c Case) device() kernel.Device {
	switch {
	case c.Protocol == conformance.RoCE:
		return kernel.RXE
	case c.Variant == withCRC:
		return kernel.SIWCRC
	default:
		return kernel.SIW
	}
}

// Setup is the configuration of our device.
type Setup struct {
	Local netip.Addr // its address
	// CRC makes an iWARP device request MPA's CRC. Without it the CRC is used only if the
	// peer requests it, which siw does not.
	CRC bool
	// SpeakFirst lets an iWARP device that accepts a connection send before the first frame of
	// the peer, against RFC 5044, section 7.1.2. The server of ucmatose sends first, and siw's
	// client does not request RFC 6581's peer-to-peer model: both would wait forever.
	SpeakFirst bool
}

// setup returns the configuration of our device, whose address is local, in a case.
func (c Case) setup(local netip.Addr) Setup {
	s := Setup{Local: local}
	if c.Protocol == conformance.IWARP {
		s.CRC = c.Variant == withCRC
		s.SpeakFirst = c.Tool == UCMatose && c.Role == Server // the server of ucmatose sends first
	}
	return s
}
