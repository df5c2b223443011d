package udplink

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
)

// Offsets of data about a packet in a filter: SKF_AD_OFF, and values of the kernel that x/sys/unix lacks.
const (
	skfAdOff       = 1<<32 - 0x1000
	skfPacketType  = skfAdOff + 4
	skfInterface   = skfAdOff + 8
	skfVLANPresent = skfAdOff + 48
)

// filterProgram is a classic BPF program that is written step by step. Each condition that does not
// hold ends the program with the result reject.
type filterProgram []unix.SockFilter

const reject = 0

// load appends a load of the 1, 2 or 4 bytes at an offset.
func (p filterProgram) load(size uint16, offset uint32) filterProgram {
	return append(p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | size, K: offset})
}

// require appends the condition that the loaded value is value.
func (p filterProgram) require(value uint32) filterProgram {
	return append(p,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: reject})
}

// requireAtMost appends the condition that the loaded value is not larger than most.
func (p filterProgram) requireAtMost(most uint32) filterProgram {
	return append(p,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: most, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: reject})
}

// splitWhole appends the end of a program: datagrams that isWhole describes have the result whole, and
// others the result rest. udp is the offset of the UDP header.
func (p filterProgram) splitWhole(udp, whole, rest uint32) filterProgram {
	p = p.load(unix.BPF_H, udp+6)                                                                        // checksum
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jf: 3})          // else rest
	p = p.load(unix.BPF_H, udp+4)                                                                        // length
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: maxRingUDP, Jt: 1}) // then rest
	return append(p,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: whole},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: rest})
}

// acceptAll is the result of a filter that keeps the whole packet.
const acceptAll = 1<<32 - 1

// ringFilter returns the filter of a ring: it accepts unfragmented UDP packets to local, in frames to
// this host without VLAN tag, as a whole or shortened to an index entry. IPv4 packets must have DF
// set and no options. Offsets count from the Ethernet header.
func ringFilter(local netip.AddrPort) filterProgram {
	const ip = ethernetHeaderLen
	var p filterProgram
	p = p.load(unix.BPF_W, skfPacketType).requireAtMost(unix.PACKET_MULTICAST) // not to other hosts
	p = p.load(unix.BPF_W, skfVLANPresent).require(0)
	var headers uint32
	if a := local.Addr(); a.Is6() {
		headers = link.IPv6HeaderLen + link.UDPHeaderLen
		p = p.load(unix.BPF_H, 12).require(link.EtherTypeIPv6)
		p = p.load(unix.BPF_B, ip+6).require(link.ProtocolUDP)
		dst := a.As16()
		for i := 0; i < len(dst); i += 4 {
			p = p.load(unix.BPF_W, uint32(ip+24+i)).require(binary.BigEndian.Uint32(dst[i:]))
		}
	} else {
		headers = link.IPv4HeaderLen + link.UDPHeaderLen
		dst := a.As4()
		p = p.load(unix.BPF_H, 12).require(link.EtherTypeIPv4)
		p = p.plainIPv4(ip)
		p = p.load(unix.BPF_B, ip+9).require(link.ProtocolUDP)
		p = p.load(unix.BPF_W, ip+16).require(binary.BigEndian.Uint32(dst[:]))
	}
	udp := ip + headers - link.UDPHeaderLen
	p = p.load(unix.BPF_H, udp+2).require(uint32(local.Port()))
	return p.splitWhole(udp, acceptAll, ip+headers+indexPayloadBytes)
}

// socketFilter returns the filter of a UDP socket beside a ring: it rejects the datagrams that the ring of
// an interface receives, and those that plainIP rejects. Offsets count from the UDP header.
func socketFilter(v6 bool, ifi int) filterProgram {
	p := plainIP(v6).load(unix.BPF_W, skfInterface)
	p = append(p,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(ifi), Jt: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: acceptAll}) // another interface has no ring
	return p.splitWhole(0, reject, acceptAll)
}

// skfNetOff is the offset of the network header in a filter (SKF_NET_OFF).
const skfNetOff = 1<<32 - 0x100000

// plainIPv4 appends the conditions that the IPv4 packet at offset ip has no options, is no fragment, and
// has DF set.
func (p filterProgram) plainIPv4(ip uint32) filterProgram {
	const versionAndLength, flags, dontFragment = 0x45, 6, 0x4000
	return p.load(unix.BPF_B, ip).require(versionAndLength).load(unix.BPF_H, ip+flags).require(dontFragment)
}

// plainIP returns the start of a filter of a UDP socket, which does not deliver the IP header: it rejects
// IPv4 packets that plainIPv4 rejects, and IPv6 packets with an extension header before UDP, except
// for reassembled ones, where it is gone.
func plainIP(v6 bool) filterProgram {
	const nextHeader = 6
	if v6 {
		return filterProgram(nil).load(unix.BPF_B, skfNetOff+nextHeader).require(link.ProtocolUDP)
	}
	return filterProgram(nil).plainIPv4(skfNetOff)
}

func attachFilter(fd int, p filterProgram) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("set SO_ATTACH_FILTER: %w", err)
	}
	return nil
}
