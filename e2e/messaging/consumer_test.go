package messaging

const consumerRole = "consumer"

func consumeUntilKilled() int { return 0 }
