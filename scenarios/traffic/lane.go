package traffic

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// lane is one side of a Lane.
type lane struct {
	end  *End
	spec *Lane
	num  int

	qp     verbs.QP // sends; receives too, but on XRC
	target verbs.QP // XRC: receives
	xrcd   verbs.XRCD
	ah     verbs.AH
	qkey   uint32

	memory  verbs.MR // what the peer works on
	bytes   []byte
	windows []verbs.MW
	keys    []verbs.RKey // of the windows
	spare   verbs.MW     // the side's own, for local binds

	shutting bool // the queue pair was taken to the error state on purpose
	flushes  int  // receives flushed
	binds    int  // windows bound

	out  sender
	in   inbox
	ring *ring   // its own receives; nil where they are shared
	xrc  []*ring // its XRC shared receive queues
}

// inbox is what becomes of a lane's arrivals: reliable services and the others
// differ in little else.
type inbox interface {
	// arrived takes a receive that completed with success.
	arrived(wc *verbs.WC, r *ring, s *slot) error
	// complete reports that nothing more will come, as far as that is known.
	complete() bool
	// end says that the peer's requests have stopped early.
	end()
	// verify checks what can be checked only at the end.
	verify(peer *laneReport) error
	status() string
	tally() Arrivals
}

// What peers may do with memory and, less, through a window.
const (
	windowAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	remoteAccess = windowAccess | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
)

func (e *End) openLane(i int) (*lane, error) {
	l := &lane{end: e, spec: &e.w.Lanes[i], num: i}
	if err := l.openMemory(); err != nil {
		return nil, err
	}
	if err := l.openQPs(); err != nil {
		return nil, err
	}
	if err := l.openReceives(); err != nil {
		return nil, err
	}
	incoming := newPlan(e.w, i, e.side.Peer())
	if l.spec.Service.Reliable() {
		l.in = newOrdered(l, incoming)
	} else {
		l.in = newLossy(l, incoming)
	}
	return l, l.out.open(l)
}

// openMemory registers the memory that the peer works on.
func (l *lane) openMemory() (err error) {
	e := l.end
	l.bytes = initialTarget(e.w, l.num, e.side)
	l.memory, err = e.pd.RegMR(verbs.MRInit{Buf: l.bytes, Access: verbs.AccessLocalWrite | verbs.AccessMWBind | remoteAccess})
	return err
}

// openQPs makes the queue pairs in RESET.
func (l *lane) openQPs() (err error) {
	e, s := l.end, l.spec
	init := verbs.QPInit{
		PD: e.pd, SendCQ: e.cqs[l.num%len(e.cqs)], RecvCQ: e.cqs[(l.num+1)%len(e.cqs)],
		Caps: verbs.QPCaps{ // one more send, for the marker
			MaxSendWR: s.SendDepth + 1, MaxRecvWR: s.RecvDepth, MaxSendSGE: s.MaxSGE, MaxRecvSGE: s.MaxSGE, MaxInline: s.MaxInline,
		},
	}
	if s.SharedReceives {
		init.SRQ = e.shared.srq
	}
	switch s.Service {
	case RC:
		init.Type = verbs.QPTypeRC
	case UC:
		init.Type = verbs.QPTypeUC
	case UD, RD:
		init.Type = verbs.QPTypeUD
		l.qkey = uint32(derive(e.w.Seed, uint64(l.num)) >> 33) // below 2^31: no privilege asked for
	case XRC:
		init.Type, init.RecvCQ = verbs.QPTypeXRCSend, nil
		if l.xrcd, err = e.env.Device.OpenXRCD(); err != nil {
			return err
		}
		if l.target, err = e.env.Device.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: l.xrcd}); err != nil {
			return err
		}
		e.byQPN[l.target.QPN()] = l
	}
	if l.qp, err = e.env.Device.CreateQP(init); err != nil {
		return err
	}
	e.byQPN[l.qp.QPN()] = l
	return nil
}

// receiver is the QP that messages come in on.
func (l *lane) receiver() verbs.QP {
	if l.target != nil {
		return l.target
	}
	return l.qp
}

// openReceives makes the lane's own receive queues.
func (l *lane) openReceives() (err error) {
	e, s := l.end, l.spec
	cfg := ringConfig{lane: l, depth: s.RecvDepth, room: s.MaxBytes, most: s.MaxSGE, rhythm: s.RecvPacing}
	switch {
	case s.Service == XRC:
		for range s.XRCQueues {
			srq, err := e.env.Device.CreateSRQ(verbs.SRQInit{
				PD: e.pd, Type: verbs.SRQXRC, MaxWR: s.RecvDepth, MaxSGE: s.MaxSGE,
				XRCD: l.xrcd, CQ: e.cqs[(l.num+1)%len(e.cqs)],
			})
			if err != nil {
				return err
			}
			r, err := e.newRing(srq, cfg)
			if err != nil {
				return err
			}
			r.srq = srq
			l.xrc = append(l.xrc, r)
		}
		return nil
	case s.SharedReceives:
		return nil
	case s.Service.Datagram():
		cfg.room += verbs.GRHLen
	}
	l.ring, err = e.newRing(l.qp, cfg)
	return err
}

// where names a request of a direction for reports.
func (l *lane) where(from Side, n int, o *op) string {
	s := fmt.Sprintf("lane %d (%v), %v to %v", l.num, l.spec.Service, from, from.Peer())
	if o != nil {
		s += fmt.Sprintf(", request %d (%v)", n, o)
	}
	return s
}

func (l *lane) status() string {
	out, in := l.out.status(), ""
	if !l.in.complete() {
		in = l.in.status()
	}
	if out == "" && in == "" {
		return ""
	}
	sep := ""
	if out != "" && in != "" {
		sep = ", "
	}
	return fmt.Sprintf("lane %d (%v): %s%s%s", l.num, l.spec.Service, out, sep, in)
}

// complete reports that the lane has nothing more to do, as far as it knows.
func (l *lane) complete() bool {
	if l.out.dead && l.spec.Service == RC && l.ring != nil && l.ring.outstanding() > 0 {
		return false // flushes are to come
	}
	return l.out.complete() && l.in.complete()
}

// windowsClosed reports whether every window on the lane's memory has been
// closed by a request that completed.
func (l *lane) windowsClosed() bool {
	if x, ok := l.in.(*ordered); ok && !x.ended && !l.out.dead {
		return x.invalidated == len(l.windows) && !l.out.bound
	}
	return false
}

// close destroys what the lane has made. Memory goes first if all windows on it
// should be closed: one that is still bound would keep it busy.
func (l *lane) close() error {
	var errs []error
	early := l.windowsClosed()
	if early {
		errs = append(errs, l.memory.Close())
	}
	errs = append(errs, l.qp.Close())
	if l.target != nil {
		errs = append(errs, l.target.Close())
	}
	if l.ah != nil {
		errs = append(errs, l.ah.Close())
	}
	if !early {
		errs = append(errs, l.memory.Close())
	}
	for _, w := range l.windows {
		errs = append(errs, w.Close())
	}
	if l.spare != nil {
		errs = append(errs, l.spare.Close())
	}
	errs = append(errs, l.out.close())
	// The XRC domain stays in use until its queues are gone.
	for _, r := range l.xrc {
		errs = append(errs, r.close())
	}
	if l.xrcd != nil {
		errs = append(errs, l.xrcd.Close())
	}
	return errors.Join(errs...)
}
