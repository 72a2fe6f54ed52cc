package projector

const serializable = "&default_transaction_isolation=serializable"
