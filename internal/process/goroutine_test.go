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
	var all, started sync.WaitGroup
	started.Add(100)
	for range 100 {
		all.Go(func() {
			id := Goroutine()
			started.Done()
			started.Wait() // all goroutines exist at once
			runtime.Gosched()
			if Goroutine() != id {
				t.Error("the ID changed")
			}
			mu.Lock()
			defer mu.Unlock()
			if id == 0 || seen[id] {
				t.Errorf("ID %#x is 0 or that of another goroutine", id)
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
				t.Error("the ID changed")
			}
		}
	})
	for range 3 {
		next()
		if Goroutine() != own || inside == own && own != 0 {
			t.Error("the ID of the caller changed, or the coroutine has it")
		}
	}
	stop()
}

// grow grows the stack, which moves it.
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
