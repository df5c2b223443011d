package fuzz_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A device frees the state that a hostile peer made it allocate: its heap does not grow with the
// number of attacks.
func TestAttackedDevicesDoNotLeakMemory(t *testing.T) {
	empty := newProgram(nil)
	for name, attack := range map[string]func(t *testing.T) (once func(round int)){
		"soft-RoCE": func(t *testing.T) func(int) {
			p := rocePair(t, empty, false)
			return func(i int) {
				p.setProgram(uint64(i))
				s := newRoCEAttack(t, p, byte(i))
				s.postWork(newProgram(randomBytes(uint64(i), 48)))
				s.finish()
			}
		},
		"datagram-iWARP": func(t *testing.T) func(int) {
			p := datagramPair(t, empty, false, dgiwarp.QPOptions{}, rd.DefaultTiming())
			return func(i int) {
				p.setProgram(uint64(i))
				s := newDatagramAttack(t, p, byte(i))
				s.postWork(newProgram(randomBytes(uint64(i), 48)))
				s.finish()
			}
		},
		"soft-iWARP": func(t *testing.T) func(int) {
			a := newStreamAttack(t, 0)
			a.Go("server", a.serve)
			a.runFor(time.Millisecond)
			return func(i int) {
				a.conns, a.current = nil, nil
				a.dial()
				for prog := newProgram(randomBytes(uint64(i), 200)); !prog.ended(); {
					a.step(prog)
				}
				a.disconnect()
				a.closeQueues()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			once := attack(t)
			const warm, more = 20, 120
			var before, after runtime.MemStats
			for i := range warm {
				once(i)
			}
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range more {
				once(warm + i)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d KiB after %d attacks, %d KiB more after %d more", before.HeapAlloc>>10, warm, grown>>10, more)
			// The test itself keeps less than a KiB for each attack.
			if grown > more<<10 {
				t.Errorf("after %d more attacks the heap has %d KiB more", more, grown>>10)
			}
			runtime.KeepAlive(once)
		})
	}
}

// setProgram replaces the program of the path.
func (p *pair) setProgram(seed uint64) {
	p.prog, p.skip, p.lose = newProgram(randomBytes(seed, 300)), 0, 0
	p.values, p.regions = nil, nil
}

// closeQueues closes the queue pairs of the attacked device before the next attack.
func (a *streamAttack) closeQueues() {
	a.t.Helper()
	a.v.fail()
	a.runFor(time.Second)
	for _, q := range a.v.queues {
		must.Do(a.t, q.qp.Close())
	}
	a.v.queues = nil
}

// randomBytes returns n pseudo-random octets, the same for each seed.
func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0xf022))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Failing sequences belong into the corpus of their target, not into files of rapid.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "3s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
