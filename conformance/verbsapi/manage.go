package verbsapi

import (
	"math"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dial is a connection of the two sides that is being made by the connection manager,
// in the direction that the case says.
type dial struct {
	*sides
	asks, answers *end
	ears          verbs.Listener
	// conn is what the asking side has got when its task has ended.
	conn verbs.Conn
	task conformance.Task
}

// between returns queue pairs on both sides that are not connected, and a listener at
// the answering one: the partner's if the device asks.
func between(r *rig.Rig, deviceAsks bool) *dial {
	d := &dial{sides: r2(r)}
	near, far := newEnd(d.near, &setup{kind: verbs.QPTypeRC}), newEnd(d.far, &setup{kind: verbs.QPTypeRC})
	d.asks, d.answers = far, near
	at := r.Local[0]
	if deviceAsks {
		d.asks, d.answers = near, far
		at = d.far.GIDEntry().GID.Addr()
	}
	var err error
	d.ears, err = d.answers.CM().Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4)
	r.Must("a listener", err)
	return d
}

// ask has the asking side connect, beside the case.
func (d *dial) ask(param verbs.ConnParam, timeout time.Duration) {
	d.task = d.near.Go("connect", func() (err error) {
		cm, err := d.asks.Device.CM()
		if err == nil {
			d.conn, err = cm.Connect(d.asks.qp, d.ears.Addr(), param, timeout)
		}
		return err
	})
}

// heard returns the request that the answering side has got.
func (d *dial) heard() verbs.ConnRequest {
	req, err := d.ears.GetRequest(d.near.ResponseTimeout())
	d.near.Must("a request for a connection", err)
	return req
}

// asked ends the case unless the asking side has a connection.
func (d *dial) asked() {
	d.near.Must("a connection", d.task.Wait(d.near.ResponseTimeout()))
}

// accept accepts a request.
func (d *dial) accept(req verbs.ConnRequest, param verbs.ConnParam) {
	d.answers.accept(req, param, d.asks)
	d.asked()
	d.asks.conn = d.conn
}

// link is the connection, once it is made.
func (d *dial) link() *link {
	l := &link{near: d.asks, far: d.answers}
	if d.answers.Rig == d.near {
		l.near, l.far = d.answers, d.asks
	}
	return l
}

// deviceAsks reports whether it is the device that asks.
func (d *dial) deviceAsks() bool { return d.asks.Rig == d.near }

// managed makes the connection, with receives posted on both sides.
func (d *dial) managed(receives int) *link {
	for i := range receives {
		d.asks.recv(uint64(i+1), toOff, 64)
		d.answers.recv(uint64(i+1), toOff, 64)
	}
	d.ask(depths, d.near.ResponseTimeout())
	d.accept(d.heard(), depths)
	return d.link()
}

// ended ends the case unless both queue pairs fail, and flush these receives.
func (l *link) ended(receives int) {
	for _, e := range []*end{l.near, l.far} {
		e.AwaitState(e.qp, failed)
		inOrder(e.Rig, completions(e.Rig, e.CQ, receives, 4), 1, verbs.WCWRFlushErr)
	}
}

// onDial makes a case of a body that runs with the device asking, and again with the
// device answering.
func onDial(body func(*dial)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		for _, deviceAsks := range []bool{false, true} {
			r.Note("the device asks: %v", deviceAsks)
			body(between(r, deviceAsks))
		}
	})
}

// limits are how much private data goes with a request and with an answer, at least,
// and from where on it cannot. InfiniBand's messages have fixed sizes. MPA's start-up
// frames have 512 octets, of which the enhanced start-up takes four; but rdma_conn_param
// counts in one octet, so that a device which is reached through librdmacm cannot be asked
// for more than 255. What the frames themselves carry, the cases of iWARP ask.
type limits struct{ request, reply, tooLong int }

func privateLimits(r *rig.Rig) limits {
	if r.Device.Info().Transport == verbs.TransportIB {
		return limits{request: 56, reply: 196, tooLong: 197}
	}
	return limits{request: math.MaxUint8, reply: math.MaxUint8, tooLong: 513}
}
