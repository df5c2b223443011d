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

// Devices that have been under attack for long hold no more memory than after a
// while: what a hostile peer makes them remember, they forget.
func TestAttacksDoNotAddUp(t *testing.T) {
	quiet := newProgram(nil)
	for name, attack := range map[string]func(t *testing.T) (once func(round int)){
		"RoCE": func(t *testing.T) func(int) {
			p := rocePair(t, quiet, false)
			return func(i int) {
				p.again(uint64(i))
				s := roceSiege(t, p, byte(i))
				s.rounds(newProgram(noise(uint64(i), 48)))
				s.finish()
			}
		},
		"datagrams": func(t *testing.T) func(int) {
			p := datagramPair(t, quiet, false, dgiwarp.QPOptions{}, rd.DefaultTiming())
			return func(i int) {
				p.again(uint64(i))
				s := datagramSiege(t, p, byte(i))
				s.rounds(newProgram(noise(uint64(i), 48)))
				s.finish()
			}
		},
		"streams": func(t *testing.T) func(int) {
			a := newAssault(t, 0)
			a.Go("server", a.serve)
			a.pass(time.Millisecond)
			return func(i int) {
				a.lines, a.now = nil, nil
				a.dial()
				for prog := newProgram(noise(uint64(i), 200)); !prog.ended(); {
					a.step(prog)
				}
				a.leave()
				a.forget()
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
			// Less than a KiB an attack are the books of the test itself.
			if grown > more<<10 {
				t.Errorf("%d more attacks have left %d KiB more", more, grown>>10)
			}
			runtime.KeepAlive(once)
		})
	}
}

// again has the path follow another program.
func (p *pair) again(seed uint64) {
	p.prog, p.skip, p.lose = newProgram(noise(seed, 300)), 0, 0
	p.values, p.regions = nil, nil
}

// forget closes the queue pairs of the attacked, so that the next attack finds none.
func (a *assault) forget() {
	a.t.Helper()
	a.v.fail()
	a.pass(time.Second)
	for _, q := range a.v.queues {
		must.Do(a.t, q.qp.Close())
	}
	a.v.queues = nil
}

// noise is n octets that look random, the same each time.
func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0xf022))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestMain(m *testing.M) {
	flag.Parse()
	// A sequence that fails is kept in the corpus of its target, as all others are.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "3s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
