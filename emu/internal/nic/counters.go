package nic

import (
	"reflect"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// CounterNames has the names of the fields of T, a struct of counters: those in their tags
// `counter:"name"`, and "" for a field without a tag.
type CounterNames[T any] []string

// NewCounterNames returns the struct tag "counter" of each field of T; empty without the tag.
func NewCounterNames[T any]() CounterNames[T] {
	t := reflect.TypeFor[T]()
	names := make(CounterNames[T], t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("counter")
	}
	return names
}

// Append appends the counters of c that have a name to list, in the order of the fields.
func (names CounterNames[T]) Append(list []verbs.Counter, c *T) []verbs.Counter {
	list = slices.Grow(list, len(names))
	fields := reflect.ValueOf(c).Elem()
	for i, name := range names {
		if name != "" {
			list = append(list, verbs.Counter{Name: name, Value: fields.Field(i).Uint()})
		}
	}
	return list
}
