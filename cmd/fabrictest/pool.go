package main

import "context"

// pool does n independent pieces of work, so many at a time, and gives the
// results in order.
type pool[T any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	results []chan T
	given   int
}

func newPool[T any](ctx context.Context, width, n int, do func(i int) T) *pool[T] {
	p := &pool[T]{results: make([]chan T, n)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for i := range p.results {
		p.results[i] = make(chan T, 1)
	}
	work := make(chan int)
	go func() {
		defer close(work)
		for i := range n {
			select {
			case work <- i:
			case <-p.ctx.Done():
				return
			}
		}
	}()
	for range min(n, width) {
		go func() {
			for i := range work {
				p.results[i] <- do(i)
			}
		}()
	}
	return p
}

// next waits for the next result.
func (p *pool[T]) next() (T, error) {
	select {
	case r := <-p.results[p.given]:
		p.given++
		return r, nil
	case <-p.ctx.Done():
		var none T
		return none, context.Cause(p.ctx)
	}
}

// stop starts no further work.
func (p *pool[T]) stop() { p.cancel() }
