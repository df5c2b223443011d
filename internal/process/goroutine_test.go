package process

import (
	"iter"
	"runtime"
	"sync"
	"testing"
)

func TestGoroutineIsUniquePerGoroutine(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		if Goroutine() != 0 {
			t.Error("Goroutine is not 0 on an unsupported architecture")
		}
		return
	}
	var mu sync.Mutex
	seen := map[uintptr]bool{Goroutine(): true}
	var all, met sync.WaitGroup
	met.Add(100)
	for range 100 {
		all.Go(func() {
			id := Goroutine()
			met.Done()
			met.Wait() // all goroutines run
			runtime.Gosched()
			if Goroutine() != id {
				t.Error("it changed")
			}
			mu.Lock()
			defer mu.Unlock()
			if id == 0 || seen[id] {
				t.Errorf("%#x was seen before", id)
			}
			seen[id] = true
		})
	}
	all.Wait()
}

func TestGoroutineOfCoroutineIsConstant(t *testing.T) {
	own := Goroutine()
	var inside uintptr
	next, stop := iter.Pull(func(yield func(int) bool) {
		inside = Goroutine()
		grow(200)
		for yield(0) {
			if Goroutine() != inside {
				t.Error("it changed")
			}
		}
	})
	for range 3 {
		next()
		if Goroutine() != own || inside == own && own != 0 {
			t.Error("the coroutine has the number of its caller")
		}
	}
	stop()
}

// grow makes the stack move.
func grow(n int) (sum byte) {
	var room [1024]byte
	if n > 0 {
		sum = grow(n - 1)
	}
	return sum + room[n]
}

func BenchmarkGoroutine(b *testing.B) {
	for b.Loop() {
		Goroutine()
	}
}
