package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

// syncWaits is a case of a synchronous send that must not be complete while its receive
// provably has not begun.
func syncWaits(n int) func(*T) {
	return func(t *T) {
		t.only(0, func() {
			r := t.issend(data(1, n), 1, 4)
			for range 5 { // the other rank runs, and looks at what has come
				t.tell(1)
				t.hear(1)
				t.pendingYet("a synchronous send without a receive", r)
			}
			t.tell(1)
			t.wait(r)
			t.tell(1)
		})
		t.only(1, func() {
			for range 5 {
				t.hear(0)
				t.linger()
				t.tell(0)
			}
			t.hear(0)
			p := t.irecv(n, 0, 4)
			t.hear(0)
			t.arrives(p, data(1, n))
		})
	}
}

var modeCases = []Case{{
	ID: "mpi/mode/synchronous-waits", Title: "A synchronous send is not complete before its receive has begun",
	Cite: rule("3.4", "mpi/3.4/1"), Defects: []string{"SyncEarly", "SyncOnArrival"},
	Sends: "an Issend of 8 bytes; a conversation; the receive", Expects: "Test false until the receive is there, then completion",
	Run: syncWaits(8),
}, {
	ID: "mpi/mode/synchronous-waits-when-large", Title: "A synchronous send of a large message is not complete before its receive has begun",
	Cite: rule("3.4", "mpi/3.4/1"), Defects: []string{"SyncEarly", "SyncOnArrival"},
	Sends: "the same with a large message", Expects: "the same",
	Run: syncWaits(large),
}, {
	ID: "mpi/mode/synchronous-waits-when-empty", Title: "A synchronous send without data is not complete before its receive has begun",
	Cite: rule("3.4", "mpi/3.4/1"), Defects: []string{"SyncEarly", "SyncSmallEarly"},
	Sends: "the same with nothing in the message", Expects: "the same",
	Run: syncWaits(0),
}, {
	ID: "mpi/mode/ssend-blocks", Title: "Ssend does not return before its receive has begun",
	Cite: rule("3.4", "mpi/3.4/1"), Setup: ranks(3), Defects: []string{"SyncEarly"},
	Sends:   "rank 0 sends synchronously to 1, then tells 2; rank 2 looks for that word before it lets 1 receive",
	Expects: "that there is no such word until then",
	Run: func(t *T) {
		switch t.Rank() {
		case 0:
			t.ok("Ssend", t.Ssend(data(1, 100), 1, 4))
			t.send(nil, 2, 5)
		case 1:
			t.hear(2)
			t.gets(data(1, 100), 0, 4)
		case 2:
			t.linger()
			_, there, err := t.Iprobe(0, 5)
			t.ok("Iprobe", err)
			t.check(!there, "Ssend not to return before its receive", "what was sent behind it")
			t.tell(1)
			t.gets(nil, 0, 5)
		}
	},
}, {
	ID: "mpi/mode/probe-receives-nothing", Title: "A probe that finds a synchronous message does not complete its send",
	Cite: rule("3.8.1", "mpi/3.8.1/2", "mpi/3.4/1"), Defects: []string{"ProbeCompletesSync"},
	Sends: "an Issend that the other rank probes, and receives later", Expects: "Test false in between",
	Run: func(t *T) {
		t.only(0, func() {
			r := t.issend(data(3, 64), 1, 4)
			t.hear(1)
			t.pendingYet("a send that was probed only", r)
			t.tell(1)
			t.wait(r)
		})
		t.only(1, func() {
			st, err := t.Probe(0, 4)
			t.ok("Probe", err)
			t.is("the probe", st, 0, 4, 64)
			t.tell(0)
			t.hear(0)
			t.gets(data(3, 64), 0, 4)
		})
	},
}, {
	ID: "mpi/mode/synchronous-to-oneself", Title: "A synchronous send to oneself waits for the receive as well",
	Cite: rule("3.4", "mpi/3.4/1"), Setup: ranks(1), Defects: []string{"SyncEarly", "SyncOnArrival"},
	Sends: "an Issend of a rank to itself, looked at before and after its receive", Expects: "that it is complete only then",
	Run: func(t *T) {
		for _, n := range []int{8, large} {
			r := t.issend(data(n, n), 0, 1)
			t.linger()
			t.pendingYet("a synchronous send without a receive", r)
			t.gets(data(n, n), 0, 1)
			t.wait(r)
		}
	},
}, {
	ID: "mpi/mode/synchronous-completes", Title: "A synchronous send completes when its receive has begun, waited for or not",
	Cite: rule("3.4", "mpi/3.4/1"), Defects: []string{"TestNever", "EmptyDropped"},
	Sends: "receives that are posted and not waited for until the sender says that its sends are complete", Expects: "that it says so",
	Run: func(t *T) {
		t.only(0, func() {
			t.hear(1)
			var rs []Request
			for i, n := range few {
				rs = append(rs, t.issend(data(i, n), 1, i))
			}
			t.until("synchronous sends complete", func() bool {
				_, done, err := t.w.TestAll(rs)
				t.ok("TestAll", err)
				return done
			})
			t.only(0, func() { // a request of a kind of its own: Test alone
				r := t.issend(nil, 1, 99)
				t.until("an empty synchronous send is complete", func() bool {
					_, done, err := r.Test()
					t.ok("Test", err)
					return done
				})
			})
			t.tell(1)
		})
		t.only(1, func() {
			var ps []*pending
			for i, n := range few {
				ps = append(ps, t.irecv(n, 0, i))
			}
			last := t.irecv(0, 0, 99)
			t.tell(0)
			t.hear(0)
			for i, p := range ps {
				t.arrives(p, data(i, few[i]))
			}
			t.arrives(last, nil)
		})
	},
}, {
	ID: "mpi/mode/ready", Title: "Ready sends whose receives are posted arrive, whatever their size",
	Cite: rule("3.4", "mpi/3.4/2"), Defects: []string{"ReadyLost", "ReadyEmpty"},
	Sends: "receives of several sizes, then an Rsend or Irsend for each", Expects: "the contents",
	Run: func(t *T) {
		t.only(1, func() {
			var ps []*pending
			for i, n := range few {
				ps = append(ps, t.irecv(n, 0, i))
			}
			t.tell(0)
			for i, p := range ps {
				t.is("the receive", t.arrives(p, data(i, few[i])), 0, i, few[i])
			}
		})
		t.only(0, func() {
			t.hear(1)
			for i, n := range few {
				if i%2 == 0 {
					t.ok("Rsend", t.Rsend(data(i, n), 1, i))
					continue
				}
				r, err := t.Irsend(data(i, n), 1, i)
				t.wait(t.begin("Irsend", r, err))
			}
		})
	},
}, {
	ID: "mpi/mode/any-receive-fits", Title: "A receive takes messages of all modes",
	Cite: rule("3.4", "mpi/3.4/3"), Defects: []string{"ReadyEmpty", "MiddleDamaged"},
	Sends: "one Send, Ssend, Bsend and Rsend to receives that are all alike", Expects: "the contents",
	Run: func(t *T) {
		t.only(1, func() {
			ready := t.irecv(100, 0, 4)
			t.tell(0)
			for i := range 3 {
				t.gets(data(i, 100), 0, i)
			}
			t.arrives(ready, data(3, 100))
		})
		t.only(0, func() {
			t.ok("AttachBuffer", t.w.AttachBuffer(4096))
			t.hear(1)
			t.ok("Send", t.Send(data(0, 100), 1, 0))
			t.ok("Ssend", t.Ssend(data(1, 100), 1, 1))
			t.ok("Bsend", t.Bsend(data(2, 100), 1, 2))
			t.ok("Rsend", t.Rsend(data(3, 100), 1, 4))
			t.ok("DetachBuffer", t.w.DetachBuffer())
		})
	},
}, {
	ID: "mpi/mode/isend-returns", Title: "Isend returns whether there is a receive or not, at any size",
	Cite: rule("3.7", "mpi/3.7/1"), Defects: []string{"IsendWaits"},
	Sends: "both ranks begin large sends to each other, and only then receive", Expects: "the contents",
	Run: func(t *T) {
		other := 1 - t.Rank()
		var rs []Request
		for i := range 4 {
			rs = append(rs, t.isend(data(10*t.Rank()+i, large), other, i))
		}
		for i := range 4 {
			t.gets(data(10*other+i, large), other, i)
		}
		t.waitAll(rs...)
	},
}, {
	ID: "mpi/mode/buffer-is-free-after-send", Title: "What is written to a buffer after Send has returned does not change the message",
	Cite: rule("3.4", "mpi/3.4/4"), Defects: []string{"LateCopy"},
	Sends: "sends from one buffer that is overwritten at once, of all sizes", Expects: "the contents of the time of the sends",
	Run: func(t *T) {
		sizes := every()
		buf := make([]byte, sizes[len(sizes)-1])
		for i, n := range sizes {
			t.only(0, func() {
				copy(buf, data(i, n))
				t.send(buf[:n], 1, 1)
				clear(buf[:n])
			})
			t.only(1, func() { t.gets(data(i, n), 0, 1) })
		}
	},
}, {
	ID: "mpi/mode/buffer-is-free-after-wait", Title: "What is written to a buffer after the wait for its send does not change the message",
	Cite: rule("3.7.3", "mpi/3.7.3/1"), Defects: []string{"LateCopy"},
	Sends:   "Isends of several sizes, whose buffers are overwritten as soon as each is complete; receives that come late",
	Expects: "the contents of the time of the sends",
	Run: func(t *T) {
		sizes := []int{1, 64, 900, 1024, 4000, 9000, 20_000, 66_000}
		t.only(0, func() {
			var rs []Request
			var bufs [][]byte
			for i, n := range sizes {
				bufs = append(bufs, data(i, n))
				rs = append(rs, t.isend(bufs[i], 1, i))
			}
			for range rs {
				i, _, err := t.w.WaitAny(rs)
				t.ok("WaitAny", err)
				t.check(i >= 0 && i < len(bufs), "an index", "%d", i)
				copy(bufs[i], bytes.Repeat([]byte{0xee}, len(bufs[i])))
			}
		})
		t.only(1, func() {
			for i := len(sizes) - 1; i >= 0; i-- {
				t.linger()
				t.gets(data(i, sizes[i]), 0, i)
			}
		})
	},
}, {
	ID: "mpi/mode/one-buffer-many-sends", Title: "One buffer can be in several sends at the same time",
	Cite: rule("3.7.2", "mpi/3.7.2/1"), Setup: ranks(3), Defects: []string{"LastByteLost", "MiddleDamaged"},
	Sends: "overlapping parts of one buffer in sends to two ranks at once", Expects: "all contents",
	Run: func(t *T) {
		d := data(5, large)
		t.only(0, func() {
			var rs []Request
			for to := 1; to <= 2; to++ {
				rs = append(rs, t.isend(d, to, 1), t.isend(d[3:1000], to, 2), t.isend(d[1000:100_000], to, 3))
			}
			t.waitAll(rs...)
		})
		if t.Rank() > 0 {
			t.gets(d, 0, 1)
			t.gets(d[3:1000], 0, 2)
			t.gets(d[1000:100_000], 0, mpi.AnyTag)
		}
	},
}}
