package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// batch collects netlink requests to one namespace and sends many with one
// system call: a fabric of 64 hosts needs some ten thousand. The kernel handles
// the messages of one send in order, before the call returns.
type batch struct {
	mu      sync.Mutex // locked by users of a finished Fabric
	fd      int
	buf     []byte
	actions []string // by message, for errors
	last    int      // where the last message starts in buf
	seq     uint32
	err     error // of requests that add has sent
}

// sendThreshold is the number of buffered bytes above which add sends them. With one more request
// they are still far fewer than a socket buffer of the default size takes.
const sendThreshold = 32 << 10

// newBatch opens a socket in the network namespace of the calling thread.
func newBatch() (*batch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1), // error messages as text
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1), // without a copy of the request
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up a netlink socket: %w", err)
	}
	return &batch{fd: fd}, nil
}

func (b *batch) close() { unix.Close(b.fd) }

// add appends a request, and sends all requests above sendThreshold. The next flush returns their
// error; until then add ignores further requests. action completes "cannot …" in an error.
func (b *batch) add(req *nl.NetlinkRequest, action string) {
	if b.err != nil {
		return
	}
	b.seq++
	req.Seq = b.seq
	b.last = len(b.buf)
	b.buf = append(b.buf, req.Serialize()...)
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
	b.actions = append(b.actions, action)
	if len(b.buf) > sendThreshold {
		b.err = b.send()
	}
}

// flush sends the remaining requests and returns the first error of the kernel since the last
// flush, with the action that failed.
func (b *batch) flush() error {
	if err := b.err; err != nil { // add has buffered no request since
		b.err = nil
		return err
	}
	return b.send()
}

// send sends the netlink requests of the batch in one message, and reads the kernel's answers. An
// error names the action whose request failed.
func (b *batch) send() error {
	if len(b.actions) == 0 {
		return nil
	}
	first := b.seq - uint32(len(b.actions)) + 1
	// The kernel always reports errors. The last message requests an ACK, which ends readAcks.
	flags := b.buf[b.last+6:] // nlmsg_flags
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	err := unix.Sendto(b.fd, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	actions := b.actions
	b.buf, b.actions = b.buf[:0], nil
	if err != nil {
		return fmt.Errorf("cannot %s: %w", actions[0], err)
	}
	return b.readAcks(first, actions)
}

// readAcks reads the answers to requests until the last of them is acknowledged. first is the
// number of the first request, and actions has an element for each.
func (b *batch) readAcks(first uint32, actions []string) error {
	var errs []error
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(b.fd, buf, 0)
		if err != nil {
			return fmt.Errorf("cannot %s: no answer: %w", actions[0], err)
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size := binary.NativeEndian.Uint32(rest)
			if size < unix.SizeofNlMsghdr || int(size) > len(rest) {
				return fmt.Errorf("cannot %s: an answer of %d bytes is cut short", actions[0], len(rest))
			}
			msg := rest[:size]
			rest = rest[min(len(rest), int(size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
			if nlmsgType := binary.NativeEndian.Uint16(msg[4:]); nlmsgType != unix.NLMSG_ERROR {
				continue
			}
			// The index of the request, by nlmsg_seq. It is too large in a late answer to
			// an earlier batch, because it wraps around.
			i, last := int(binary.NativeEndian.Uint32(msg[8:])-first), len(actions)-1
			if err := ackError(msg); err != nil {
				errs = append(errs, fmt.Errorf("cannot %s: %w", actions[min(i, last)], err))
			}
			if i == last {
				return firstError(errs)
			}
		}
	}
}

// ackError returns the error of an NLMSG_ERROR message, with the kernel's text
// if any; nil if it is an ACK.
func ackError(msg []byte) error {
	body := msg[unix.SizeofNlMsghdr:]
	if len(body) < 4 {
		return errors.New("an answer is cut short")
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	err := error(unix.Errno(-code))
	// The attributes with the text follow the code and the header of the request.
	if len(body) < 4+unix.SizeofNlMsghdr || binary.NativeEndian.Uint16(msg[6:])&unix.NLM_F_ACK_TLVS == 0 {
		return err
	}
	attrs, bad := nl.ParseRouteAttr(body[4+unix.SizeofNlMsghdr:])
	if bad != nil {
		return err
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", err, nl.BytesToString(a.Value))
		}
	}
	return err
}
