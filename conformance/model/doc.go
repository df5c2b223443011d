// Package model has reference models of the protocols, written from their specifications.
// The models are pure: they take packets and work requests, and return what a correct device may do.
package model
