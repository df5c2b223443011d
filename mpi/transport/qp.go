package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// NewRC creates an RC queue pair in the state INIT. srq may be nil.
func (r *Rail) NewRC(caps verbs.QPCaps, srq verbs.SRQ) (verbs.QP, error) {
	qp, err := r.Dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: r.PD, SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Caps: caps})
	if err != nil {
		return nil, err
	}
	// The access flags of a QP are about remote access only.
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: r.Access &^ verbs.AccessLocalWrite}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	return qp, nil
}

// DefaultAckTimeout is the time after which a NIC retransmits by default. It then reports an unreachable
// peer after two seconds or more, because a rank on a busy machine may be stalled for one.
const DefaultAckTimeout = 268 * time.Millisecond

// Retransmission attributes of a queue pair. A NIC waits for receives without limit.
const (
	retries    = 7
	rnrTimer   = 8 // 160 µs
	rnrForever = 7
)

// Remote is the remote end of an RC connection.
type Remote struct {
	GID verbs.GID
	QPN verbs.QPN
	PSN uint32
}

// MaxReads is how many RDMA reads and atomics a connection can have outstanding.
func (r *Rail) MaxReads() uint8 { return min(r.Attr.MaxQPRdAtomic, r.Attr.MaxQPInitAtomic) }

// ConnectRC connects a queue pair to a remote one: it moves qp from INIT to RTR and RTS. psn
// is the first PSN that qp sends.
func (r *Rail) ConnectRC(qp verbs.QP, to Remote, psn uint32) error {
	attr := verbs.QPAttr{
		State: verbs.QPStateRTR, AH: r.address(to.GID), PathMTU: r.MTU, DestQPN: to.QPN, RQPSN: to.PSN,
		MaxDestRdAtomic: r.MaxReads(), MinRNRTimer: rnrTimer,
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: psn, MaxRdAtomic: r.MaxReads(),
		Timeout: verbs.AckTimeoutFor(r.AckTimeout), RetryCnt: retries, RNRRetry: rnrForever,
	}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry)
}

// IgnoreClosed returns err, the result of closing a verbs object, but nil if the object or its device
// was closed before (verbs.ErrClosed or ErrInvalid).
func IgnoreClosed(err error) error {
	if errors.Is(err, verbs.ErrClosed) || errors.Is(err, verbs.ErrInvalid) {
		return nil
	}
	return err
}

// maxSGEs is the longest scatter/gather list: a packet with gathered data and a trailer.
const maxSGEs = 3

// SendQueue posts the send requests of a queue pair, one at a time.
type SendQueue struct {
	QP          verbs.QP
	Depth       int
	outstanding int
	inOrder     []uint64 // WRIDs from the oldest unsignaled request on
	completed   []uint64 // result of CompletedBefore
	unsignaled  int      // requests since the last signaled one
	wr          [1]verbs.SendWR
	sges        [maxSGEs]verbs.SGE
}

// Free is how many more requests can be posted.
func (q *SendQueue) Free() int { return q.Depth - q.outstanding }

// Outstanding is how many posted requests have not completed.
func (q *SendQueue) Outstanding() int { return q.outstanding }

// Unsignaled is how many requests were posted since the last signaled one. They have no completions of
// their own, and complete with the next signaled request.
func (q *SendQueue) Unsignaled() int { return q.unsignaled }

// AwaitsCompletion reports whether a completion of a posted request follows.
func (q *SendQueue) AwaitsCompletion() bool { return q.outstanding > q.unsignaled }

// Request returns the work request that Post posts; the caller fills it in.
func (q *SendQueue) Request() *verbs.SendWR { return &q.wr[0] }

// SGL returns an empty scatter/gather list for the request.
func (q *SendQueue) SGL() []verbs.SGE { return q.sges[:0] }

// Post posts the work request that Request returned.
func (q *SendQueue) Post() error {
	if _, err := q.QP.PostSend(q.wr[:]); err != nil {
		return err
	}
	q.outstanding++
	q.unsignaled++
	if q.wr[0].Flags&verbs.SendSignaled != 0 {
		q.unsignaled = 0
	}
	if q.unsignaled > 0 || len(q.inOrder) > 0 {
		q.inOrder = append(q.inOrder, q.wr[0].WRID)
	}
	return nil
}

// CompletedBefore returns the WRIDs of unsignaled requests that were posted before the one with a WRID,
// whose completion was polled: they have succeeded. Requests of a queue pair complete in order. The
// result is valid until the next call.
func (q *SendQueue) CompletedBefore(wrid uint64) []uint64 {
	at := slices.Index(q.inOrder, wrid)
	if at < 0 {
		return nil // posted before the oldest unsignaled request
	}
	q.completed = append(q.completed[:0], q.inOrder[:at]...)
	q.inOrder = slices.Delete(q.inOrder, 0, at+1)
	return q.completed
}

// CountCompletion must be called for every posted request that has completed, with or without a completion
// of its own.
func (q *SendQueue) CountCompletion() { q.outstanding-- }

// Packet is the contents of a packet.
type Packet struct {
	Buf       *memory.Buffer
	Len       int
	CopiedLen int            // length of the part in Buf
	Gathered  *memory.Region // the rest of the packet; nil if all is in Buf
	HasImm    bool
	Imm       uint32 // immediate data
}

// AppendSGL appends the packet's scatter/gather list with the LKeys of a rail: the part in Buf,
// then the Gathered part, if any.
func (p *Packet) AppendSGL(sges []verbs.SGE, rail int) []verbs.SGE {
	sges = append(sges, p.Buf.SGE(rail, 0, p.CopiedLen))
	if p.Gathered != nil {
		sges = append(sges, p.Gathered.SGE(rail, 0, p.Len-p.CopiedLen))
	}
	return sges
}

// AppendSGLWithTrailer appends the packet's scatter/gather list for a slot of a ring: it ends with
// the trailer that marks the packet as complete. The trailer is stored in Buf after the CopiedLen
// bytes of the packet.
func (p *Packet) AppendSGLWithTrailer(sges []verbs.SGE, rail int, trailer uint64) []verbs.SGE {
	binary.NativeEndian.PutUint64(p.Buf.B[p.CopiedLen:], trailer)
	sges = p.AppendSGL(sges, rail)
	if p.Gathered == nil {
		sges[len(sges)-1].Length += TrailerLen // the trailer follows the packet in Buf
		return sges
	}
	return append(sges, p.Buf.SGE(rail, p.CopiedLen, TrailerLen))
}

// RecvQueue posts receives to a queue pair or an SRQ.
type RecvQueue struct {
	Post   func([]verbs.RecvWR) (int, error)
	Rail   int
	Size   int            // of a receive
	staged []verbs.RecvWR // to post at the next Flush
	sges   []verbs.SGE    // of staged
}

// Stage adds a receive to those that Flush posts.
func (q *RecvQueue) Stage(wrid uint64, buf *memory.Buffer) {
	q.sges = append(q.sges, buf.SGE(q.Rail, 0, q.Size))
	q.staged = append(q.staged, verbs.RecvWR{WRID: wrid})
}

// Staged is the number of receives that Flush posts.
func (q *RecvQueue) Staged() int { return len(q.staged) }

// Flush posts the staged receives, all in one call.
func (q *RecvQueue) Flush() error {
	if len(q.staged) == 0 {
		return nil
	}
	for i := range q.staged {
		q.staged[i].SGL = q.sges[i : i+1 : i+1] // not in Stage, whose next append may move sges
	}
	n, err := q.Post(q.staged)
	if err != nil {
		return fmt.Errorf("post receive %d of %d: %w", n+1, len(q.staged), err)
	}
	q.staged, q.sges = q.staged[:0], q.sges[:0]
	return nil
}

// Requests is the table of posted work requests, each with a context of type T. A WRID is the index
// of a request and a generation, which identifies late completions of closed QPs.
type Requests[T any] struct {
	entries []request[T]
	idle    []uint32
}

type request[T any] struct {
	context    T
	generation uint32
	posted     bool
}

// Add returns a new WRID for a work request that will be posted, and stores the request's context until
// Remove. The WRID consists of the index and the generation of the table entry.
func (r *Requests[T]) Add(context T) (wrid uint64) {
	n := len(r.idle)
	if n == 0 {
		r.entries = append(r.entries, request[T]{context: context, posted: true})
		return uint64(len(r.entries) - 1) // generation 0
	}
	i := r.idle[n-1]
	r.idle = r.idle[:n-1]
	e := &r.entries[i]
	e.context, e.posted = context, true
	return uint64(e.generation)<<32 | uint64(i)
}

// Find returns the context of a posted request. It returns nil for any other WRID; stale
// reports whether the WRID is that of a removed request.
func (r *Requests[T]) Find(wrid uint64) (context *T, stale bool) {
	i := uint32(wrid)
	if int(i) >= len(r.entries) {
		return nil, false
	}
	e := &r.entries[i]
	if e.generation != uint32(wrid>>32) {
		return nil, true
	}
	if !e.posted {
		return nil, false // no request has had this WRID yet
	}
	return &e.context, false
}

// Remove removes a request, whose WRID becomes stale.
func (r *Requests[T]) Remove(wrid uint64) {
	i := uint32(wrid)
	r.entries[i] = request[T]{generation: r.entries[i].generation + 1}
	r.idle = append(r.idle, i)
}

// RemoveMatching removes all requests for which match returns true, and calls removed for each.
func (r *Requests[T]) RemoveMatching(match func(*T) bool, removed func(T)) {
	for i := range r.entries {
		if e := &r.entries[i]; e.posted && match(&e.context) {
			context := e.context
			r.Remove(uint64(i)) // Remove uses only the index of a WRID
			removed(context)
		}
	}
}

// Datagrams is the queue pair of a rail that reaches every rank. A NIC with reliable
// datagrams also executes RDMA on it.
type Datagrams struct {
	SendQueue
	Reliable  bool
	MaxPacket int
	// MaxMulticast is the length of the longest multicast packet; 0 if the NIC has no multicast.
	MaxMulticast uint16
	rail         *Rail
	ahs          map[int]verbs.AH  // by rank
	groups       map[uint64]*group // by id
}

// group is a multicast group that a queue pair has joined.
type group struct {
	ah       verbs.AH
	attached bool
}

// qKey is the Q_Key of all ranks.
const qKey = 0x0fab7e57

// datagramDepth is the depth of the send queue.
const datagramDepth = 512

// OpenDatagrams creates the rail's UD queue pair with room for a number of receives, and moves it
// to RTS. packetSize is the length of the longest packet; it is limited to that of a UD message
// unless the NIC delivers those reliably (CapRD). After an error the result must be closed as well.
func (r *Rail) OpenDatagrams(packetSize, receives int) (*Datagrams, error) {
	d := &Datagrams{rail: r, Reliable: r.Attr.Caps.Has(verbs.CapRD), MaxPacket: packetSize, ahs: make(map[int]verbs.AH), groups: make(map[uint64]*group)}
	d.Depth = datagramDepth
	if !d.Reliable {
		d.MaxPacket = min(packetSize, r.maxDatagram)
	}
	if r.Attr.Caps.Has(verbs.CapMulticast) {
		d.MaxMulticast = uint16(min(d.MaxPacket, r.MTU.Bytes()))
	}
	if err := r.ReserveCQEs(receives + datagramDepth); err != nil {
		return d, err
	}
	var err error
	const packetParts = 2 // see Packet.AppendSGL
	d.QP, err = r.Dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.PD, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: datagramDepth, MaxRecvWR: receives, MaxSendSGE: packetParts, MaxRecvSGE: 1},
	})
	if err != nil {
		return d, fmt.Errorf("create a datagram queue pair: %w", err)
	}
	for _, step := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey}, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, 0},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrSQPSN},
	} {
		if err := d.QP.Modify(step.attr, verbs.QPAttrState|step.mask); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Destination returns the address of a rank's datagram queue pair. The address handle is
// created with the first call for a rank, and kept until Close.
func (d *Datagrams) Destination(rank int, remote Endpoint) (verbs.UD, error) {
	ah := d.ahs[rank]
	if ah == nil {
		var err error
		if ah, err = d.rail.PD.CreateAH(d.rail.address(remote.GID)); err != nil {
			return verbs.UD{}, err
		}
		d.ahs[rank] = ah
	}
	return verbs.UD{AH: ah, QPN: remote.QPN, QKey: qKey}, nil
}

// Fail moves the queue pair to the error state: the NIC no longer accesses memory for it.
func (d *Datagrams) Fail() {
	if d.QP != nil {
		_ = d.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) // fails if the device is gone
	}
}

// JoinGroup attaches the queue pair to the multicast group with an id, and returns the address of the group.
func (d *Datagrams) JoinGroup(id uint64) (verbs.UD, error) {
	gid := groupGID(id, d.rail.GID)
	if err := d.QP.AttachMulticast(gid); err != nil {
		return verbs.UD{}, err
	}
	ah, err := d.rail.PD.CreateAH(d.rail.address(gid))
	if err != nil {
		return verbs.UD{}, errors.Join(err, d.QP.DetachMulticast(gid))
	}
	d.groups[id] = &group{ah, true}
	return verbs.UD{AH: ah, QPN: verbs.MulticastQPN, QKey: qKey}, nil
}

// LimitToMTU limits packets to the MTU of the rail, which LimitMTU may have reduced.
func (d *Datagrams) LimitToMTU() {
	if !d.Reliable && !d.rail.iwarp {
		d.MaxPacket = min(d.MaxPacket, d.rail.MTU.Bytes())
	}
}

// LeaveGroup detaches the queue pair from a group, unless JoinGroup has failed. The address of the group remains
// valid until Close, because packets may be posted.
func (d *Datagrams) LeaveGroup(id uint64) error {
	g := d.groups[id]
	if g == nil || !g.attached {
		return nil
	}
	g.attached = false
	return d.QP.DetachMulticast(groupGID(id, d.rail.GID))
}

// groupGID returns a multicast address for a group, of the address family of a GID: a transient one of IPv6
// (RFC 4291), or an IPv4 one for the own site (RFC 2365). Groups may share an IPv4 address.
func groupGID(id uint64, of verbs.GID) verbs.GID {
	var a [16]byte
	a[0], a[1] = 0xff, 0x12
	binary.BigEndian.PutUint64(a[8:], id)
	if !of.Addr().Is4() {
		return verbs.GIDFrom(netip.AddrFrom16(a))
	}
	const primeFactor = 0x9e3779b97f4a7c15 // spreads ids over all addresses
	hash := id * primeFactor
	return verbs.GIDFrom(netip.AddrFrom4([4]byte{239, 255, byte(hash >> 56), byte(hash >> 48)}))
}

// Close closes the queue pair and the address handles.
func (d *Datagrams) Close() error {
	if d.QP == nil {
		return nil
	}
	var errs []error
	for id := range d.groups {
		errs = append(errs, IgnoreClosed(d.LeaveGroup(id)))
	}
	errs = append(errs, d.QP.Close())
	for _, ah := range d.ahs {
		errs = append(errs, ah.Close())
	}
	for _, g := range d.groups {
		errs = append(errs, g.ah.Close())
	}
	return errors.Join(errs...)
}
