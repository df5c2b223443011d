package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
)

// Ethernet is a wire on an Ethernet interface. It is a station with its own MAC and IP
// addresses. The kernel at this end must not have these addresses: it would respond to
// packets for the scripted peer, probably with ICMP errors. The wire responds to ARP and
// neighbour discovery for them, and announces them when it is opened.
//
// It has no IP stack: it neither reassembles, nor verifies, nor responds to anything else.
// Recv must see frames as they are on the link. Switch off transmit offloads at the
// device's end of a virtual link and receive offloads at this end of a real one
// ([DisableOffloads]); Recv returns an error for frames that show an offload.
type Ethernet struct {
	*queue
	station
	intf string
	file *os.File // owns the socket
	conn syscall.RawConn
	mtu  int
}

var _ conformance.Wire = (*Ethernet)(nil)

const maxIPLen = 1<<16 - 1

// OpenEthernet opens a conformance.Wire on an Ethernet interface in the network namespace of the
// calling thread, which needs CAP_NET_RAW. It announces the addresses of cfg by ARP and NDP.
func OpenEthernet(cfg EthernetConfig) (*Ethernet, error) {
	w, err := openEthernet(cfg)
	if err != nil {
		return nil, fmt.Errorf("wire at %s: %w", cfg.Interface, err)
	}
	go w.readLoop()
	for _, f := range w.announcements() {
		if err := w.send(f); err != nil {
			return nil, errors.Join(fmt.Errorf("wire at %s: announce addresses: %w", cfg.Interface, err), w.Close())
		}
	}
	return w, nil
}

// openEthernet opens a wire and its socket. The caller starts readLoop.
func openEthernet(cfg EthernetConfig) (*Ethernet, error) {
	intf, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, err
	}
	w := &Ethernet{queue: newQueue("wire at "+cfg.Interface, cfg.Epoch), intf: cfg.Interface, mtu: intf.MTU}
	if w.station, err = newStation(&cfg, intf.HardwareAddr); err != nil {
		return nil, err
	}
	// Protocol 0: no frames arrive before the socket is bound to its interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("packet socket: %w: it needs CAP_NET_RAW in the user namespace that owns the network namespace", err)
	}
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	if err := configureSocket(fd, intf.Index); err != nil {
		unix.Close(fd)
		return nil, err
	}
	w.file, w.conn, err = newFile(fd, "packet:"+cfg.Interface)
	return w, err
}

// configureSocket sets the options of a packet socket, and binds it to the interface index.
func configureSocket(fd, index int) error {
	if err := setOptions(fd, []option{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING"}, // no frames of our own
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1, "PACKET_AUXDATA"},                 // flags partial checksums
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS"},
	}); err != nil {
		return err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	// Promiscuous mode, for frames to other stations and groups. It ends with the socket.
	m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("PACKET_MR_PROMISC: %w", err)
	}
	return nil
}

// Send implements conformance.Wire. Packets sent while the link is down are lost.
func (w *Ethernet) Send(packet []byte) error { return w.send(w.ethernetFrame(packet)) }

// send sends a frame. If the link is down, the frame is lost, which is no error.
func (w *Ethernet) send(frame []byte) (err error) {
	connErr := w.conn.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), frame)
		if errors.Is(err, unix.ENETDOWN) {
			// The kernel reports an earlier link-down once: retry.
			_, err = unix.Write(int(fd), frame)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("packet of %d bytes exceeds the MTU of %s, %d: %w", len(frame)-ethernetHeaderLen, w.intf, w.mtu, conformance.ErrBenchCannot)
	}
	return errors.Join(connErr, os.NewSyscallError("send", err))
}

// Recv implements conformance.Wire. It returns an error if frames were dropped.
func (w *Ethernet) Recv(timeout time.Duration) (conformance.Frame, error) {
	f, err := w.queue.Recv(timeout)
	if n := w.overruns(); n > 0 {
		w.addDropped(n)
		return w.queue.Recv(0) // reports the n dropped frames as an error
	}
	return f, err
}

// overruns returns the number of frames that the kernel dropped since the last call.
func (w *Ethernet) overruns() (n uint64) {
	_ = w.conn.Control(func(fd uintptr) {
		if st, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = uint64(st.Drops)
		}
	})
	return n
}

// Join implements conformance.Wire. The wire receives all frames anyway.
func (w *Ethernet) Join(netip.Addr) error { return nil }

// Discard discards received frames and the count of dropped ones.
func (w *Ethernet) Discard() {
	w.overruns()
	w.discard()
}

// Close closes the wire. A blocked Recv returns.
func (w *Ethernet) Close() error {
	err := w.file.Close()
	<-w.closed
	return err
}

// readLoop reads frames from the socket until it is closed. It queues the packets of the device for
// Recv, and answers ARP requests and neighbour solicitations.
func (w *Ethernet) readLoop() {
	defer close(w.closed)
	const vlanTagLen = 4
	buf, control := make([]byte, ethernetHeaderLen+vlanTagLen+maxIPLen), make([]byte, 256)
	for {
		n, oobn, _, _, err := receiveMessage(w.conn, buf, control)
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil: // ENETDOWN: the link is down
			continue
		}
		info, _ := parseControl(control[:oobn])
		ip, answer := w.handleFrame(buf[:n])
		if answer != nil {
			_ = w.send(answer) // if it fails, the device's host asks again
		}
		if ip != nil {
			w.deliver(ip, &info)
		}
	}
}

// deliver queues a packet for Recv, or an error if an offload has changed the packet.
func (w *Ethernet) deliver(ip []byte, info *ancillary) {
	a := arrival{seen: info.seen, Frame: conformance.Frame{Packet: append([]byte(nil), ip...)}}
	switch {
	case info.partialChecksum:
		a.err = fmt.Errorf("wire at %s: packet with a partial checksum: switch off the offload at the device's end (ethtool -K IF tx off)", w.intf)
	case len(ip) > w.mtu:
		a.err = fmt.Errorf("wire at %s: frame of %d bytes, coalesced from several: switch off the offload (ethtool -K IF gso off gro off lro off)", w.intf, len(ip))
	}
	w.add(a) // packets that the kernel dropped are counted by Recv
}

// DisableOffloads disables checksum offload, segmentation offload and GRO of an interface in the
// calling thread's network namespace. Use it for both ends of a virtual link; on a real link, for
// the end of this host.
func DisableOffloads(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO, unix.ETHTOOL_STXCSUM} {
		err := ethtool(fd, name, command)
		// Ignore features that the interface does not have.
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("switch offloads of %s off (ethtool command %#x): %w", name, command, err)
		}
	}
	return nil
}

// ethtool runs an ETHTOOL_S* command with the value 0, which disables a feature of an interface.
// fd is any socket in the network namespace.
func ethtool(fd int, name string, command uint32) error {
	value := struct{ command, data uint32 }{command: command}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // of the union in struct ifreq
	}
	if len(name) >= len(req.name) {
		return errors.New("interface name too long")
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}
