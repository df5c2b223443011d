package udplink

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// forever is longer than any correct wait.
const forever = 30 * time.Second

// waitFor runs WaitReadable(d) in a goroutine and returns how long it took.
func waitFor(l *Link, d time.Duration) <-chan time.Duration {
	took := make(chan time.Duration, 1)
	start := time.Now()
	go func() {
		l.WaitReadable(d)
		took <- time.Since(start)
	}()
	return took
}

func expectEnd(t *testing.T, took <-chan time.Duration) {
	t.Helper()
	select {
	case <-took:
	case <-time.After(forever):
		t.Fatal("WaitReadable still sleeps")
	}
}

// awaitSleep returns when a goroutine sleeps on l.
func awaitSleep(l *Link) {
	for l.sleep.state.Load() != asleep {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Millisecond) // it sets the state before it enters the kernel
}

func loopLink(t testing.TB) *Link {
	t.Helper()
	return openLink(t, Config{Local: netip.MustParseAddrPort("127.0.0.2:0")})
}

func TestWaitTimesOut(t *testing.T) {
	l := loopLink(t)
	start := time.Now()
	for range 100 {
		must.Do(t, l.WaitReadable(0))
	}
	if d := time.Since(start); d > forever {
		t.Errorf("100 waits with timeout 0 took %v", d)
	}
	const want = 30 * time.Millisecond
	start = time.Now()
	must.Do(t, l.WaitReadable(want))
	if d := time.Since(start); d < want || d > forever {
		t.Errorf("a wait of %v took %v", want, d)
	}
}

func TestWaitIsFinerThanAMillisecond(t *testing.T) {
	l := loopLink(t)
	best := forever
	for i := 0; i < 50 || i < 2000 && best >= time.Millisecond; i++ { // a busy machine may delay some
		start := time.Now()
		l.WaitReadable(100 * time.Microsecond)
		best = min(best, time.Since(start))
	}
	if best < 100*time.Microsecond || best >= time.Millisecond {
		t.Errorf("the shortest wait of 100 µs took %v", best)
	}
}

func TestWaitEndsWhenDatagramArrives(t *testing.T) {
	l, peer := loopLink(t), loopLink(t)
	took := waitFor(l, -1)
	awaitSleep(l)
	sendAll(t, peer, link.Datagram{Dst: local(l), Payload: []byte("hello")})
	expectEnd(t, took)
	expectEnd(t, waitFor(l, -1)) // the datagram is still unread
	recvN(t, l, 1, 1)
}

func TestWakeEndsCurrentOrNextWait(t *testing.T) {
	l := loopLink(t)
	took := waitFor(l, -1)
	awaitSleep(l)
	l.Wake()
	expectEnd(t, took)

	l.Wake()
	l.Wake()
	expectEnd(t, waitFor(l, -1)) // both count as one
	const want = 20 * time.Millisecond
	if d := <-waitFor(l, want); d < want {
		t.Errorf("the wait after the woken one took %v, want %v", d, want)
	}
}

// Wake races with WaitReadable; each Wake ends a wait.
func TestWakesAreNotLost(t *testing.T) {
	l := loopLink(t)
	for range 5000 {
		took := waitFor(l, forever)
		l.Wake()
		expectEnd(t, took)
	}
}

// Recv stops in the middle of a super-packet, whose rest is no longer in the socket.
func TestRestOfSuperPacketEndsWait(t *testing.T) {
	l := openLink(t, Config{Local: netip.MustParseAddrPort("[::1]:0"), GSO: OffloadOn, GRO: OffloadOn})
	want := datagrams(100, 100, 100)
	for i := range want {
		want[i].Dst = local(l)
	}
	for range 200 {
		sendAll(t, l, want...)
		took := make(chan time.Duration, 1)
		go func() {
			for range 2 { // the first may end by the arrival
				took <- <-waitFor(l, -1)
			}
		}()
		if got := recvN(t, l, 1, 1); len(got) != 1 {
			t.Fatal("nothing arrived")
		}
		expectEnd(t, took)
		expectEnd(t, took)
		recvN(t, l, 2, 2)
	}
}

// The sleep begins after Recv has emptied the socket, and before setUndelivered.
func TestSetUndeliveredWakesSleeper(t *testing.T) {
	l := loopLink(t)
	took := waitFor(l, -1)
	awaitSleep(l)
	l.sleep.setUndelivered(true)
	expectEnd(t, took)
	l.sleep.setUndelivered(false)
}

func TestCloseWakesWaitReadable(t *testing.T) {
	l := loopLink(t)
	errs := make(chan error, 1)
	go func() { errs <- l.WaitReadable(-1) }()
	awaitSleep(l)
	must.Do(t, l.Close())
	<-errs // either nil or ErrClosed
	must.Fail(t, "WaitReadable of a closed link", l.WaitReadable(-1), link.ErrClosed)
}

func TestClosedLinkReturnsErrClosed(t *testing.T) {
	l := loopLink(t)
	addr := local(l)
	must.Do(t, l.Close())
	ds := datagrams(1)
	_, sendErr := l.Send(0, ds)
	_, recvErr := l.Recv(0, ds)
	group := netip.MustParseAddr("239.1.1.1")
	for what, err := range map[string]error{
		"Send": sendErr, "Recv": recvErr, "WaitReadable": l.WaitReadable(-1), "Join": l.Join(group), "Leave": l.Leave(group), "Close": l.Close(),
	} {
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("%s of a closed link: %v", what, err)
		}
	}
	l.Wake()
	l.Stats()
	openLink(t, Config{Local: addr}) // the address is free at once
}

// Close races with Send, Recv, WaitReadable and Wake. A descriptor used after its close
// would show as another error than ErrClosed, or as a datagram in the wrong socket.
func TestCloseRaces(t *testing.T) {
	for range 50 {
		l := loopLink(t)
		to := local(l)
		var wg sync.WaitGroup
		drive := func(f func() error) {
			wg.Go(func() {
				for {
					if err := f(); err != nil {
						if !errors.Is(err, link.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		out := []link.Datagram{{Dst: to, Payload: make([]byte, 64)}, {Dst: to, Payload: make([]byte, 64)}}
		in := make([]link.Datagram, 4)
		drive(func() error {
			if _, err := l.Send(0, out); err != nil {
				return err
			}
			_, err := l.Recv(0, in)
			return err
		})
		drive(func() error { return l.WaitReadable(-1) })
		stop := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					l.Wake()
				}
			}
		})
		time.Sleep(200 * time.Microsecond)
		must.Do(t, l.Close())
		close(stop)
		wg.Wait()
		openLink(t, Config{Local: to}).Close()
	}
}

// Descriptors are closed, also when Open fails.
func TestDescriptorsAreClosed(t *testing.T) {
	count := func() int {
		fds := must.Get(os.ReadDir("/proc/self/fd"))(t)
		return len(fds)
	}
	taken := loopLink(t)
	before := count()
	for range 5 {
		l := loopLink(t)
		must.Do(t, l.Join(netip.MustParseAddr("239.77.1.8")))
		l.Close()
		if _, err := Open(Config{Local: local(taken)}); err == nil {
			t.Fatal("opened an address twice")
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
