// Package providertest has the rig of the providers' tests: [End], a queue pair with the
// objects that it needs, [Cable], two ports in a simulated world, and programs that exchange
// messages ([Echo]). Its own tests are those that all providers must pass; what only one
// provider does is tested in the provider's package.
//
// Only tests import it.
package providertest
